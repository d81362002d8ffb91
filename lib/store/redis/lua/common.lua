-- What the record's envelope says (docs/format.md). `outcome` is what the caller will be told by answer.lua, once it is known.
local outcome, expired
local magic, schema, state, recover, flags, epoch, lease_ms, claim, lease_until, changed, expires, created
if r then
  if #r < 64 then return {-1, now, ''} end
  magic, schema, state, recover, flags, epoch, lease_ms, claim, lease_until, changed, expires, created = unpack(envelope, r)
  -- Whatever is none of the states would be granted again.
  if magic ~= 79 or schema < 1 or state < 1 or state > 4 or recover > 2 or epoch < 1 then return {-1, now, ''} end
  if schema <= newest and (#r < 133 or (byte(r, 70) == 1) ~= (state == 2)) then return {-1, now, ''} end
  -- A clock that went back must not shorten or revive anything.
  if changed > now then now = changed end
  -- What is over counts as none, whether or not Redis has removed it yet.
  if (state == 2 or state == 3) and expires ~= 0 and now >= expires and schema <= newest then
    expired = true
    r = false
  end
end
