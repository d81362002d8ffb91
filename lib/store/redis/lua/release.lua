-- Where an earlier epoch ended in doubt, that this one did nothing does not settle it.
if open then to = flags % 4 >= 2 and 4 or 3 end
-- Before any effect, and so was every release before it: two leases are enough.
if to == 3 and ms ~= 0 and flags % 8 < 4 then brief = math.max(ms, 2 * lease_ms) end
ms = 0
if mine and state == 3 then outcome = 6 end
