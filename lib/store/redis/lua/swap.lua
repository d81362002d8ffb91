-- KEYS: 1 the secrets, 2 the mark of their record secret. ARGV: 1 the text that is replaced, empty: there is none yet, 2 the new one,
-- 3 its mark. Answers the text that is there now; none where it is gone and its mark, which is not the new one's, is left. Not preceded
-- by common.lua. Nothing is written to read: a server that is full still tells its secrets to a gateway that comes new.
local text, mark = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
local none = ARGV[1] == ''
if (text and not none and text == ARGV[1]) or (not text and none and (not mark or mark == ARGV[3])) then
  redis.call('SET', KEYS[1], ARGV[2])
  text = ARGV[2]
end
-- The first two lines are the version and the record secret.
local same = text and string.match(text, '^[^\n]*\n[^\n]*\n') == string.match(ARGV[2], '^[^\n]*\n[^\n]*\n')
if same and mark ~= ARGV[3] then redis.call('SET', KEYS[2], ARGV[3]) end
return text or ''
