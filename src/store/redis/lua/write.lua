-- Events of a holder, and settling. ARGV: 2 claim id, 3 epoch, 4 whether replicas are waited for, 5 lease or ttl (0: the
-- record's), 6 payload's kind, 7 its status, 8 its bytes, 9 force.
if r and schema > newest then return answer(3) end
local mine = r and claim == ARGV[2] and epoch == tonumber(ARGV[3])
local open = state == 1 or state == 4
-- What was done before: a write, so that there is something to wait for.
local function again(outcome)
  if ARGV[4] == '1' and (outcome == 6 or outcome == 7) then
    if expires ~= 0 then
      redis.call('PEXPIREAT', key, expires)
    else
      redis.call('SETRANGE', key, 0, sub(r, 1, 1))
    end
  end
  return answer(outcome)
end
-- The record with another head and this payload.
local function store(to, new_flags, until_ms, new_expires, ttl)
  local payload = ARGV[8]
  r = pack(envelope, 79, schema, to, recover, new_flags, epoch, lease_ms, claim, until_ms, now, new_expires, created)
    .. sub(r, 65, 69) .. pack('<BI2', tonumber(ARGV[6]), tonumber(ARGV[7])) .. sub(r, 73, 120) .. pack('<I8I4', ttl, #payload)
    .. sub(r, 133, 133 + byte(r, 133)) .. payload
  if new_expires ~= 0 then
    redis.call('SET', key, r, 'PXAT', new_expires)
  else
    redis.call('SET', key, r)
  end
  return answer(6)
end
local function record_ttl()
  return (unpack('<I8', r, 121))
end
-- Completed or failed, for a retention from now on.
local function finish(to)
  local ttl = tonumber(ARGV[5])
  if ttl == 0 then ttl = record_ttl() end
  return store(to, 0, lease_until, now + ttl, ttl)
end
-- Only the envelope changes.
local function mark(to, new_flags, until_ms)
  local head = pack(envelope, 79, schema, to, recover, new_flags, epoch, lease_ms, claim, until_ms, now, expires, created)
  redis.call('SETRANGE', key, 0, head)
  r = head .. sub(r, 65)
  return answer(6)
end
local function lease_from_now()
  local lease = tonumber(ARGV[5])
  return now + (lease ~= 0 and lease or lease_ms)
end
