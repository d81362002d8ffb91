// express-idempotency as its README shows it, in front of the payments of README.md.
'use strict';
const express = require('express');
const {idempotency, getSharedIdempotencyService} = require('express-idempotency');

let count = 0;
const app = express();
app.use(express.json({limit: '1mb'}));
app.use(express.raw({limit: '1mb'}));
app.get('/executions', (request, response) => response.json({count}));
app.post('/payments', idempotency(), (request, response) => {
    const service = getSharedIdempotencyService();
    if (service.isHit(request)) {
        return;
    }
    const amount = Buffer.isBuffer(request.body) ? request.body.length : request.body.amount;
    if (!amount) {
        response.status(400).json({error: 'which amount?'});
        return;
    }
    count += 1;
    const id = count;
    setTimeout(() => {
        if (request.body.then) {
            service.reportError(request);
            response.status(request.body.then).json({error: 'failed'});
        } else {
            response.status(201).set('Location', `/payments/${id}`).json({id, amount});
        }
    }, 20);
});
const server = app.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
