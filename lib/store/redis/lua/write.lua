-- Events of a holder, and settling. `said`: flags (1: replicas are waited for, 2: force), schema, payload's kind and status, epoch,
-- claim id, lease or ttl (0: the record's; of a release: how long to remember what ended before any effect, 0: it may have had one).
-- `more`: the payload. The event sets `to`, the state that comes of it, or `outcome`; and `brief` where that is not kept for its ttl.
local options, _, kind, status, his_epoch, his_claim, ms = unpack('<BBBI2I4c16I8', said)
local waits, force = options % 2 == 1, options >= 2
local newer = r and schema > newest
local mine = r and claim == his_claim and epoch == his_epoch and not newer
local open = mine and (state == 1 or state == 4)
local to, brief
outcome = newer and 3 or mine and state == 2 and 7 or 8
