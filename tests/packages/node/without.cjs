// The program of Prisma loads a studio, a development server and drivers of other databases, 130 MB that generating a client does not
// need: package.json has something small installed in their place, and this keeps it from being used.
const Module = require('node:module');
const load = Module._load;
Module._load = function (name, ...rest) {
  return /^(@prisma\/(dev|studio-core)|mysql2|postgres)(\/|$)/.test(name) ? {} : load.call(this, name, ...rest);
};
