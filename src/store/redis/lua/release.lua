-- Where an earlier epoch ended in doubt, that this one did nothing does not settle it.
if open then to = flags % 4 >= 2 and 4 or 3 end
if mine and state == 3 then outcome = 6 end
