-- ARGV: 1 the text that is replaced, 2 the new one. Answers the text that is there now. Not preceded by common.lua.
local text = redis.call('GET', KEYS[1])
if text == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2])
  return ARGV[2]
end
return text or ''
