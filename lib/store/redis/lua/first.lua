-- `said`: the record as a first claim leaves it; where its four times will be it has the lease, and 1 where replicas are waited for.
-- `more`: further fingerprints of 37 bytes (secret, mode, hash), if any.
local lease, waits = unpack('<I8I8', said, 33)
local r = redis.pcall('SET', key, pack('<c32I8I8I8I8', said, now + lease, now, 0, now) .. sub(said, 65), 'NX', 'GET')
if not r then return now end
if type(r) == 'table' then
  -- A server that takes no new records still tells about those that it has; but not one that has another master by now.
  if sub(r.err, 1, 8) == 'READONLY' then return r end
  local refusal = r
  r = redis.call('GET', key)
  if not r then return refusal end
end
