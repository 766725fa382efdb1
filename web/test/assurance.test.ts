import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Assurance } from '../src/kube/assurance';
import { Failure } from '../src/kube/failure';
import { isProof } from '../src/kube/proof';

// A server that answers as long as it runs, and after whose end somebody else may answer.
class Place {
  answers: 'own' | 'nobody' | 'stranger' = 'own';
  log: string[] = [];
  lost: () => void = () => undefined;
  whileProving: () => void = () => undefined;

  assurance = new Assurance({
    prove: () => {
      this.log.push('prove');
      this.whileProving();
      if (this.answers === 'nobody') return Promise.reject(new Failure(0, '', 'nobody is there'));
      return Promise.resolve(this.answers === 'own');
    },
    hold: (lost) => {
      this.log.push('hold');
      this.lost = lost;
      return Promise.resolve(() => this.log.push('release'));
    },
    foreign: () => this.log.push('foreign'),
    changed: () => this.log.push(this.assurance.isSure() ? 'sure' : 'unsure'),
  });

  take(): string[] {
    return this.log.splice(0);
  }
}

test('a server proves itself before and after the connection that is held, once for all who wait', async () => {
  const place = new Place();
  await Promise.all([place.assurance.wait(), place.assurance.wait()]);
  await place.assurance.wait();
  assert.deepEqual(place.take(), ['prove', 'hold', 'prove', 'sure']);
});

test('after the end of the connection nothing passes until the server has proved itself again', async () => {
  const place = new Place();
  await place.assurance.wait();
  place.take();
  place.answers = 'nobody';
  place.lost();
  assert.equal(place.assurance.isSure(), false);
  await assert.rejects(place.assurance.wait(), { code: 0 });
  place.answers = 'own';
  await place.assurance.wait();
  assert.deepEqual(place.take(), ['unsure', 'prove', 'prove', 'hold', 'prove', 'sure']);
});

test('a stranger is told nothing, and ends the session', async () => {
  const place = new Place();
  await place.assurance.wait();
  place.take();
  place.lost();
  place.answers = 'stranger';
  await assert.rejects(place.assurance.wait(), { code: 401 });
  assert.deepEqual(place.take(), ['unsure', 'prove', 'foreign']);
});

test('a stranger who comes between the proof and the connection is no server, and the connection is not kept', async () => {
  const place = new Place();
  const waits = place.assurance.wait();
  place.answers = 'stranger';
  await assert.rejects(waits, { code: 401 });
  assert.deepEqual(place.take(), ['prove', 'hold', 'prove', 'foreign', 'release']);
  assert.equal(place.assurance.isSure(), false);
});

test('a connection that ends while the server proves itself gives no assurance', async () => {
  const place = new Place();
  place.whileProving = () => {
    place.lost();
  };
  await assert.rejects(place.assurance.wait(), { code: 0 });
  assert.deepEqual(place.take(), ['prove', 'hold', 'prove']);
});

// An HMAC-SHA256, as the server makes it.
const key = '0b'.repeat(32);
const proof = '198a607eb44bfbc69903a0f1cf2bbdc5ba0aa3f3d9ae3c1c7a3b1696a0b68cf7';

test('a proof is of the key and the nonce', async () => {
  assert.equal(await isProof(key, 'Hi There', proof), true);
  assert.equal(await isProof(key, 'Hi there', proof), false);
  assert.equal(await isProof('0c'.repeat(32), 'Hi There', proof), false);
  for (const other of ['', undefined, {}, `${proof}00`, proof.slice(2), proof.toUpperCase()]) assert.equal(await isProof(key, 'Hi There', other), false);
  assert.equal(await isProof('', 'Hi There', proof), false);
});
