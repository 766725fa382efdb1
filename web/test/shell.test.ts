import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asFailure, fromBody, fromStatus } from '../src/kube/failure';
import { collection, kinds, single, subresource, withQuery } from '../src/kube/paths';
import { formatRoute, parseRoute, type Route } from '../src/shell/route';

const routes: Route[] = [
  { page: 'machines', namespace: '', words: '', status: '' },
  { page: 'machines', namespace: 'a', words: 'x y&z', status: 'Running' },
  { page: 'machine', namespace: 'a', name: 'b', tab: 'overview' },
  { page: 'machine', namespace: 'a', name: 'b/../%2f?#', tab: 'console' },
  { page: 'create', namespace: 'a' },
  { page: 'volumes', namespace: 'a', words: 'x y' },
  { page: 'types', namespace: '', words: '' },
  { page: 'nodes' },
  { page: 'migrations', namespace: '' },
];
for (const route of routes) {
  test(`the address ${formatRoute(route)} leads back to its page`, () => {
    assert.deepEqual(parseRoute(formatRoute(route)), route);
  });
}

test('unknown addresses are no page', () => {
  for (const hash of ['#/secrets', '#/machines/a', '#/machines/a/b/nothing', '#/machines/a/b/yaml/x', '#/nodes/x', '#/machines/%E0%A4%A/b', '#/machines/../b', '#/machines/a/..']) {
    assert.equal(parseRoute(hash).page, 'unknown');
  }
  assert.equal(parseRoute('').page, 'machines');
});

test('paths of the API', () => {
  assert.equal(collection(kinds.vm, ''), '/apis/kubevirt.io/v1/virtualmachines');
  assert.equal(collection(kinds.node, 'a'), '/api/v1/nodes');
  assert.equal(single(kinds.vm, 'a', 'b'), '/apis/kubevirt.io/v1/namespaces/a/virtualmachines/b');
  assert.equal(subresource(kinds.vmi, 'a', 'b', 'console'), '/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/console');
  assert.equal(withQuery('/x', { limit: '5', continue: undefined, fieldSelector: 'a=b' }), '/x?limit=5&fieldSelector=a%3Db');
});

test('a name is one element of a path, whatever it contains', () => {
  assert.equal(single(kinds.vm, 'a/b', '../c?d'), '/apis/kubevirt.io/v1/namespaces/a%2Fb/virtualmachines/..%2Fc%3Fd');
  for (const name of ['', '.', '..']) {
    assert.throws(() => single(kinds.vm, 'a', name), /is no name of an object/);
    if (name !== '') assert.throws(() => collection(kinds.vm, name), /is no name of an object/);
  }
});

test('a failure has the sentence of the server', () => {
  const failure = fromStatus(422, { code: 422, reason: 'Invalid', message: 'm', details: { causes: [{ field: 'f', message: 'c' }] } });
  assert.deepEqual([failure.code, failure.reason, failure.message, failure.causes.length], [422, 'Invalid', 'm', 1]);
  assert.equal(fromBody(502, 'bad gateway\n').message, 'bad gateway');
  assert.equal(fromBody(500, '').message, 'HTTP 500');
  assert.equal(asFailure(new TypeError('fetch failed')).code, 0);
});
