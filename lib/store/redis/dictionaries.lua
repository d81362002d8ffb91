-- Lists the dictionaries of a store, adds one, or takes some out of use.
--
--   redis-cli --eval dictionaries.lua DICTIONARIES , KNOWN [NEW]
--   redis-cli --eval dictionaries.lua DICTIONARIES , retire IDS
--   redis-cli --eval dictionaries.lua DICTIONARIES , drop IDS
--
-- DICTIONARIES is the key of the list: of each dictionary its length (2 bytes), its id (4 bytes) and its bytes. NEW is a dictionary
-- in this form. KNOWN is the length of the list as the caller has it: if it is another one by now, the caller looks first whether
-- one of those will do. The answer is the list.
--
-- IDS are those of some dictionaries, one behind the other. One that is retired has 32768 beside its length: nothing more is
-- compressed with it. When no record names it any more it is dropped: what stays is its id and no bytes, so that no program that
-- had it puts it back.
local list = redis.call('GET', KEYS[1]) or ''
local act, new = ARGV[1], ARGV[2]
if act == 'retire' or act == 'drop' then
  local named, parts, at = {}, {}, 1
  for i = 1, #new, 4 do named[string.sub(new, i, i + 3)] = true end
  while at + 5 <= #list do
    local len, id = struct.unpack('<I2c4', list, at)
    local size = len % 32768
    local bytes = string.sub(list, at + 6, at + 5 + size)
    if named[id] and act == 'retire' then
      len = size + 32768
    elseif named[id] and len > 32768 then
      len, bytes = 32768, ''
    end
    parts[#parts + 1] = struct.pack('<I2', len) .. id .. bytes
    at = at + 6 + size
  end
  list = table.concat(parts)
  redis.call('SET', KEYS[1], list)
elseif new and #list == tonumber(act) and #list < 262144 then
  -- A server that takes nothing new still lists what it has.
  local longer = list .. new
  if not redis.pcall('SET', KEYS[1], longer).err then list = longer end
end
return list
