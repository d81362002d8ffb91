-- ARGV: 1 the record as a first claim leaves it, but for its four times, 2 lease, 3 "1" where replicas are waited for, else "0",
-- and further fingerprints of 37 bytes (secret, mode, hash).
local asked = ARGV[1]
local r = redis.pcall('SET', key, pack('<c32I8I8I8I8', asked, now + ARGV[2], now, 0, now) .. sub(asked, 65), 'NX', 'GET')
if not r then return now end
if type(r) == 'table' then
  -- A server that takes no new records still tells about those that it has; but not one that has another master by now.
  if sub(r.err, 1, 8) == 'READONLY' then return r end
  local refusal = r
  r = redis.call('GET', key)
  if not r then return refusal end
end
