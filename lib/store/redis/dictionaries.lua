-- Lists the dictionaries of a store, or adds one.
--
--   redis-cli --eval dictionaries.lua DICTIONARIES , KNOWN [NEW]
--
-- DICTIONARIES is the key of the list: of each dictionary its length (2 bytes), its id (4 bytes) and its bytes. NEW is a dictionary
-- in this form. KNOWN is the length of the list
-- as the caller has it: if it is another one by now, the caller looks first whether one of those will do. The answer is the list.
local list = redis.call('GET', KEYS[1]) or ''
local new = ARGV[2]
if new and #list == tonumber(ARGV[1]) and #list < 262144 then
  -- A server that takes nothing new still lists what it has.
  local longer = list .. new
  if not redis.pcall('SET', KEYS[1], longer).err then list = longer end
end
return list
