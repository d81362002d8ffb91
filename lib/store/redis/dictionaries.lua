-- Lists the dictionaries of a store, or adds one.
--
--   redis-cli --eval dictionaries.lua DICTIONARIES , KNOWN [NEW]
--
-- DICTIONARIES is the key of the list: the length of each dictionary (2 bytes) and the dictionary. KNOWN is the length of the list
-- as the caller has it: if it is another one by now, the caller looks first whether one of those will do. The answer is the list.
local list = redis.call('GET', KEYS[1]) or ''
local new = ARGV[2]
if new and #list == tonumber(ARGV[1]) and #list < 262144 then
  list = list .. struct.pack('<I2', #new) .. new
  redis.call('SET', KEYS[1], list)
end
return list
