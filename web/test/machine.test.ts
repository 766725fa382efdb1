import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Migration, VM, VMI } from '../src/kube/types';
import { obstacle, type ActionName, type Obstacle, type Subject } from '../src/machine/actions';
import { diskRows, nicRows } from '../src/machine/devicerows';
import { keysymOf, pressed } from '../src/machine/keys';
import { editable, isSame, parseManifest } from '../src/machine/manifest';
import { currentCPUs, currentMemory, waits } from '../src/machine/state';
import { sendBounded } from '../src/machine/stream';

const stopped: VM = { metadata: { name: 'a' }, spec: { runStrategy: 'Halted' } };
const wanted: VM = { metadata: { name: 'a' }, spec: { runStrategy: 'Always' } };
const locked: VM = { metadata: { name: 'a', labels: { 'kubevirt.io/maintenance': 'pod' } }, spec: { runStrategy: 'Halted' } };
const deleted: VM = { metadata: { name: 'a', deletionTimestamp: 'now' }, spec: { runStrategy: 'Halted' } };
const running: VMI = { metadata: { name: 'a' }, spec: {}, status: { phase: 'Running' } };
const ended: VMI = { metadata: { name: 'a' }, spec: {}, status: { phase: 'Failed' } };
const paused: VMI = { ...running, status: { phase: 'Running', conditions: [{ type: 'Paused', status: 'True' }] } };
const fixed: VMI = { ...running, status: { phase: 'Running', conditions: [{ type: 'LiveMigratable', status: 'False' }] } };
const migration: Migration = { metadata: { name: 'm' }, spec: {}, status: { phase: 'Running' } };

const cases: [ActionName, Subject, Obstacle | undefined][] = [
  ['start', { vm: stopped, vmi: undefined }, undefined],
  ['start', { vm: wanted, vmi: ended }, undefined],
  ['start', { vm: wanted, vmi: running }, 'runs'],
  ['start', { vm: locked, vmi: undefined }, 'inMaintenance'],
  ['start', { vm: undefined, vmi: running }, 'noVM'],
  ['start', { vm: deleted, vmi: undefined }, 'isDeleted'],
  ['stop', { vm: wanted, vmi: undefined }, undefined],
  ['stop', { vm: stopped, vmi: undefined }, 'isStopped'],
  ['restart', { vm: wanted, vmi: undefined }, 'doesNotRun'],
  ['pause', { vm: wanted, vmi: paused }, 'isPaused'],
  ['pause', { vm: wanted, vmi: running, migration }, 'migrates'],
  ['unpause', { vm: wanted, vmi: paused }, undefined],
  ['unpause', { vm: wanted, vmi: running }, 'isNotPaused'],
  ['migrate', { vm: wanted, vmi: running }, undefined],
  ['migrate', { vm: wanted, vmi: fixed }, 'notMigratable'],
  ['migrate', { vm: wanted, vmi: running, migration }, 'migrates'],
  ['cancelMigration', { vm: wanted, vmi: running, migration }, undefined],
  ['cancelMigration', { vm: wanted, vmi: running }, 'doesNotMigrate'],
  ['takeMaintenance', { vm: stopped, vmi: undefined }, undefined],
  ['releaseMaintenance', { vm: locked, vmi: undefined }, undefined],
  ['releaseMaintenance', { vm: stopped, vmi: undefined }, 'notInMaintenance'],
  ['delete', { vm: deleted, vmi: undefined }, 'isDeleted'],
];
for (const [i, [action, subject, want]] of cases.entries()) {
  test(`case ${String(i)}: ${action} ${want === undefined ? 'is possible' : `has the obstacle ${want}`}`, () => {
    assert.equal(obstacle(action, subject), want);
  });
}

test('a wait is told once, by its most specific condition', () => {
  const message = 'no node fits';
  const vm: VM = { ...wanted, status: { conditions: [{ type: 'Ready', status: 'False', message }, { type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message }] } };
  const vmi: VMI = { ...running, status: { phase: 'Scheduling', conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message }] } };
  assert.deepEqual(waits(vm, vmi), [{ condition: 'PodScheduled', reason: 'Unschedulable', message, severity: 'warning' }]);
});

test('a stopped machine waits for nothing', () => {
  const vm: VM = { ...stopped, status: { conditions: [{ type: 'Ready', status: 'False', reason: 'VMINotExists', message: 'no VMI' }] } };
  assert.deepEqual(waits(vm, undefined), []);
});

test('CPUs and memory are those of the guest while it runs', () => {
  const vm: VM = { ...wanted, spec: { template: { spec: { domain: { cpu: { sockets: 4, cores: 2 }, memory: { guest: '4Gi' } } } } } };
  const vmi: VMI = { ...running, status: { phase: 'Running', currentCPUTopology: { sockets: 2, cores: 2, threads: 1 }, memory: { guestCurrent: '2Gi' } } };
  assert.deepEqual([currentCPUs(vm, vmi), currentMemory(vm, vmi)], [4, '2Gi']);
  assert.deepEqual([currentCPUs(vm, undefined), currentMemory(vm, undefined)], [8, '4Gi']);
});

test('an instance type decides the CPUs of a machine that does not run', () => {
  assert.equal(currentCPUs({ ...stopped, spec: { instancetype: { name: 'small' } } }, undefined), undefined);
});

test('rows of disks know whether they can be unplugged', () => {
  const spec = {
    domain: { devices: { disks: [{ name: 'root', disk: { bus: 'virtio' } }, { name: 'data', disk: { bus: 'scsi' } }, { name: 'cd', cdrom: {} }] } },
    volumes: [{ name: 'root', containerDisk: { image: 'x' } }, { name: 'data', persistentVolumeClaim: { claimName: 'c', hotpluggable: true } }],
  };
  assert.deepEqual(
    diskRows(spec, spec, []).map((r) => [r.name, r.bus, r.source, r.pluggable]),
    [['root', 'virtio', 'x', false], ['data', 'scsi', 'PersistentVolumeClaim c', true], ['cd', '', '', false]],
  );
});

test('rows of interfaces name their network and addresses', () => {
  const spec = {
    domain: { devices: { interfaces: [{ name: 'default', masquerade: {} }, { name: 'blue', bridge: {}, state: 'down' }] } },
    networks: [{ name: 'default', pod: {} }, { name: 'blue', multus: { networkName: 'blue-net' } }],
  };
  assert.deepEqual(nicRows(spec, [{ name: 'default', mac: 'm', ipAddresses: ['1', '2'], linkState: 'up' }], 'pods'), [
    { name: 'default', network: 'pods', binding: 'masquerade', mac: 'm', addresses: '1, 2', link: 'up' },
    { name: 'blue', network: 'blue-net', binding: 'bridge', mac: '', addresses: '', link: 'down' },
  ]);
});

test('a manifest is edited without status and managed fields', () => {
  const text = editable({ kind: 'VirtualMachine', metadata: { name: 'a', managedFields: [1] }, status: {} } as never);
  assert.equal(text, 'kind: VirtualMachine\nmetadata:\n  name: a\n');
});

const texts = { invalid: 'not YAML', notObject: 'no object' };

test('what is no manifest is refused before it is sent', () => {
  assert.match((parseManifest('a: [', texts) as { error: string }).error, /^not YAML: /);
  for (const text of ['', '- 1', 'x', 'metadata: 1', 'metadata: {name: 5}']) assert.deepEqual(parseManifest(text, texts), { error: 'no object' });
});

test('an alias bomb is refused', () => {
  const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${'bcdefgh'.split('').map((c, i) => `${c}: &${c} [${Array(9).fill(`*${'abcdefgh'[i] ?? ''}`).join(',')}]`).join('\n')}`;
  assert.ok('error' in parseManifest(bomb, texts));
});

test('another name is another object', () => {
  const identity = { kind: 'VirtualMachine', name: 'a', namespace: 'n' };
  assert.equal(isSame({ kind: 'VirtualMachine', metadata: { name: 'a', namespace: 'n' } }, identity), true);
  assert.equal(isSame({ kind: 'VirtualMachine', metadata: { name: 'b', namespace: 'n' } }, identity), false);
});

test('keys are pressed in order and released in reverse', () => {
  const [a, b] = [{ keysym: 1, code: 'a' }, { keysym: 2, code: 'b' }];
  assert.deepEqual(pressed([a, b]).map(([k, down]) => [k.code, down]), [['a', true], ['b', true], ['b', false], ['a', false]]);
});

test('characters have keysyms', () => {
  assert.deepEqual(['a', 'ä', '\n', '€'].map(keysymOf), [0x61, 0xe4, 0xff0d, 0x10020ac]);
});

test('what a guest does not read waits within a bound', () => {
  const sent: number[] = [];
  const socket = (readyState: 1 | 2, bufferedAmount: number): Pick<WebSocket, 'readyState' | 'bufferedAmount' | 'send'> => ({
    readyState, bufferedAmount, send: (bytes) => sent.push((bytes as Uint8Array).length),
  });
  assert.deepEqual([socket(1, 0), socket(1, (1 << 20) - 4), socket(1, (1 << 20) - 3), socket(2, 0)].map((s) => sendBounded(s, new Uint8Array(4))), [true, true, false, false]);
  assert.deepEqual(sent, [4, 4]);
});
