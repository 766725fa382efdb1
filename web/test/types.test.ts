import assert from 'node:assert/strict';
import { test } from 'node:test';
import { displayName, preferenceFacts, typeFacts } from '../src/cluster/typefacts';
import { t } from '../src/text/en';

test('a type says what it has besides CPUs and memory', () => {
  const facts = typeFacts({
    metadata: { name: 'x' },
    spec: {
      cpu: { guest: 4, dedicatedCPUPlacement: true }, memory: { guest: '8Gi', hugepages: { pageSize: '2Mi' }, overcommitPercent: 15 },
      gpus: [{ deviceName: 'a/gpu' }], hostDevices: [{ deviceName: 'b/device' }, {}],
    },
  });
  assert.deepEqual(facts.map(t.types.fact), ['CPUs of its own', 'huge pages of 2Mi', 'memory overcommitted by percent: 15', 'device a/gpu', 'device b/device']);
  assert.deepEqual(typeFacts({ metadata: { name: 'x' }, spec: { memory: { overcommitPercent: 0 } } }), []);
  assert.deepEqual(typeFacts({ metadata: { name: 'x' } }), []);
});

test('a preference says what it sets: Secure Boot is more than UEFI', () => {
  const kinds = (firmware: object): string[] => preferenceFacts({ metadata: { name: 'x' }, spec: { firmware } }).map((f) => f.kind);
  assert.deepEqual(kinds({ preferredEfi: { secureBoot: true } }), ['secureBoot']);
  assert.deepEqual(kinds({ preferredEfi: {} }), ['efi']);
  assert.deepEqual(kinds({ preferredUseEfi: true, preferredUseSecureBoot: true }), ['secureBoot']);
  assert.deepEqual(kinds({ preferredUseEfi: false }), []);
  const facts = preferenceFacts({ metadata: { name: 'x' }, spec: { devices: { preferredTPM: {}, preferredDiskBus: 'sata', preferredInterfaceModel: 'e1000e' }, cpu: { preferredCPUTopology: 'cores' } } });
  assert.deepEqual(facts.map(t.types.fact), ['TPM', 'disks by sata', 'NICs by e1000e', 'CPUs as cores']);
});

test('a name for people comes from the annotations of publishers', () => {
  assert.equal(displayName({ metadata: { name: 'x', annotations: { 'openshift.io/display-name': 'Fedora' } } }), 'Fedora');
  assert.equal(displayName({ metadata: { name: 'x' } }), '');
});
