end
if #KEYS == 1 then return decide(KEYS[1], ARGV[1], ARGV[2]) end
local answers, each = {}, #ARGV / #KEYS
for i = 1, #KEYS do
  local at = each * (i - 1) + 1
  local is_good, answer = pcall(decide, KEYS[i], ARGV[at], each > 1 and ARGV[at + 1] or nil)
  if not is_good and type(answer) ~= 'table' then answer = {err = answer} end
  answers[i] = answer
end
return answers
