-- ARGV: 1 the text that is replaced, empty: there is none yet, 2 the new one. Answers the text that is there now. Not preceded by
-- common.lua. Nothing is written to read: a server that is full still tells its secrets to a gateway that comes new.
local text = redis.call('GET', KEYS[1])
local none = ARGV[1] == ''
if (text and not none and text == ARGV[1]) or (not text and none) then
  redis.call('SET', KEYS[1], ARGV[2])
  return ARGV[2]
end
return text or ''
