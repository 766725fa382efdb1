import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allows, type Rule, type Wish } from '../src/kube/rights';

const start: Wish = { verb: 'update', group: 'subresources.kubevirt.io', resource: 'virtualmachines/start' };

const cases: [string, Rule, Wish, boolean][] = [
  ['the very right', { verbs: ['update'], apiGroups: ['subresources.kubevirt.io'], resources: ['virtualmachines/start'] }, start, true],
  ['everything', { verbs: ['*'], apiGroups: ['*'], resources: ['*'] }, start, true],
  ['a subresource of every resource', { verbs: ['update'], apiGroups: ['*'], resources: ['*/start'] }, start, true],
  ['another verb', { verbs: ['get'], apiGroups: ['*'], resources: ['*'] }, start, false],
  ['another group', { verbs: ['*'], apiGroups: ['kubevirt.io'], resources: ['*'] }, start, false],
  ['the resource without the subresource', { verbs: ['*'], apiGroups: ['*'], resources: ['virtualmachines'] }, start, false],
  ['another subresource of every resource', { verbs: ['*'], apiGroups: ['*'], resources: ['*/stop'] }, start, false],
  ['another object only', { verbs: ['*'], apiGroups: ['*'], resources: ['*'], resourceNames: ['a'] }, { ...start, name: 'b' }, false],
  ['this object', { verbs: ['*'], apiGroups: ['*'], resources: ['*'], resourceNames: ['a'] }, { ...start, name: 'a' }, true],
  ['some object, asked for all', { verbs: ['*'], apiGroups: ['*'], resources: ['*'], resourceNames: ['a'] }, start, false],
  ['an empty rule', {}, start, false],
];

for (const [name, rule, wish, want] of cases) {
  test(`${name} ${want ? 'grants' : 'does not grant'}`, () => {
    assert.equal(allows([rule], wish), want);
  });
}
