import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseQuantity, memoryText } from '../src/kube/quantity';
import type { VM, VMI } from '../src/kube/types';
import { inBulk, possible } from '../src/machines/bulk';
import { arrange, Rows, statuses, type View } from '../src/machines/rows';
import { windowOf } from '../src/machines/window';

const vm = (name: string, status = 'Running', memory = '1Gi'): VM => ({
  metadata: { name, namespace: 'ns' },
  spec: { runStrategy: 'Always', template: { spec: { domain: { memory: { guest: memory } } } } },
  status: { printableStatus: status },
});
const vmi = (name: string, owner?: string): VMI => ({
  metadata: { name, namespace: 'ns', ownerReferences: owner ? [{ kind: owner, name, uid: 'u' }] : undefined },
  spec: {},
  status: { phase: 'Running', nodeName: 'node1', interfaces: [{ ipAddress: '10.0.0.7' }] },
});
const map = <T extends { metadata: { name: string } }>(...of: T[]): Map<string, T> => new Map(of.map((o) => [`ns/${o.metadata.name}`, o]));
const view: View = { words: '', status: '', column: 'name', descending: false };

test('rows are VMs with their VMI, and VMIs without a VM', () => {
  const rows = new Rows().of(map(vm('a')), map(vmi('a', 'VirtualMachine'), vmi('lone'), vmi('left', 'VirtualMachine')));
  assert.deepEqual(rows.map((r) => [r.name, r.node, r.vm !== undefined]), [['a', 'node1', true], ['lone', 'node1', false]]);
});

test('a VMI of the same name that belongs to nobody is not the VM’s', () => {
  assert.equal(new Rows().of(map(vm('a', 'Stopped')), map(vmi('a')))[0]?.node, '');
});

test('rows whose objects are the same stay the same', () => {
  const rows = new Rows();
  const [a, b] = [vm('a'), vm('b')];
  const first = rows.of(map(a, b), new Map());
  const second = rows.of(map(a, vm('b', 'Paused')), new Map());
  assert.equal(second[0], first[0]);
  assert.notEqual(second[1], first[1]);
});

test('words match name, node and address, all of them', () => {
  const rows = new Rows().of(map(vm('web1'), vm('db1', 'Stopped')), map(vmi('web1', 'VirtualMachine')));
  const found = (words: string): string[] => arrange(rows, { ...view, words }, parseQuantity).map((r) => r.name);
  assert.deepEqual([found('1'), found('NODE1 web'), found('10.0.0.7'), found('web stopped')], [['db1', 'web1'], ['web1'], ['web1'], []]);
});

test('names are sorted by their numbers, memory by its amount', () => {
  const rows = new Rows().of(map(vm('a10', '', '512Mi'), vm('a9', '', '2Gi'), vm('a11', '', '1Gi')), new Map());
  const names = (v: Partial<View>): string[] => arrange(rows, { ...view, ...v }, parseQuantity).map((r) => r.name);
  assert.deepEqual(names({}), ['a9', 'a10', 'a11']);
  assert.deepEqual(names({ column: 'memory', descending: true }), ['a9', 'a11', 'a10']);
});

test('statuses are counted', () => {
  assert.deepEqual(statuses(new Rows().of(map(vm('a'), vm('b'), vm('c', 'Stopped')), new Map())), [['Running', 2], ['Stopped', 1]]);
});

test('one change in 5,000 machines makes one row', () => {
  const vms = map(...Array.from({ length: 5000 }, (_, i) => vm(`vm-${String(i)}`)));
  const rows = new Rows();
  const first = rows.of(vms, new Map());
  const second = rows.of(new Map(vms).set('ns/vm-7', vm('vm-7', 'Paused')), new Map());
  assert.deepEqual(second.filter((r, i) => r !== first[i]).map((r) => r.name), ['vm-7']);
});

test('only the rows of the window are drawn, and the heights of the others remain', () => {
  assert.deepEqual(windowOf(5000, 50, 10_000, 1000, 0), { first: 200, end: 220, before: 10_000, after: 239_000 });
  assert.deepEqual(windowOf(3, 50, -500, 1000), { first: 0, end: 3, before: 0, after: 0 });
  const last = windowOf(5000, 50, 1e9, 1000, 0);
  assert.deepEqual([last.first, last.end, last.after], [4980, 5000, 0]);
});

test('in bulk, a few run at once and each refusal is kept', async () => {
  const rows = new Rows().of(map(...'abcdefgh'.split('').map((n) => vm(n))), new Map());
  let now = 0;
  let most = 0;
  const refusals = await inBulk(rows, async (row) => {
    most = Math.max(most, ++now);
    await new Promise((done) => setImmediate(done));
    now--;
    if (row.name === 'c') throw new Error('no');
  }, 3);
  assert.equal(most, 3);
  assert.deepEqual(refusals.map((r) => [r.row.name, r.failure.message]), [['c', 'no']]);
});

test('a bulk action leaves out machines that it does not fit', () => {
  const rows = new Rows().of(map(vm('a'), vm('b')), map(vmi('a', 'VirtualMachine')));
  assert.deepEqual(possible('start', rows).map((r) => r.name), ['b']);
});

test('quantities are read and written', () => {
  assert.deepEqual(['1Gi', '500m', '1.5G', '1e3', '2E', 'x', '', undefined, '3Zz'].map(parseQuantity), [2 ** 30, 0.5, 1.5e9, 1000, 2e18, undefined, undefined, undefined, undefined]);
  assert.deepEqual(['1536Mi', '2048', 'odd'].map(memoryText), ['1.5 GiB', '2 KiB', 'odd']);
});
