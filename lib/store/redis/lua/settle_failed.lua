if open and (now >= lease_until or force) then to = 3 end
if mine and state == 3 then outcome = 6 end
if outcome == 8 then outcome = 9 end
