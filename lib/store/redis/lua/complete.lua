if open then to = 2 end
