if open and (now >= lease_until or force) then to = 2 end
if outcome == 8 then outcome = 9 end
