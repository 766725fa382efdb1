// Disks and network interfaces; claims are plugged and unplugged.
import { useState, type ReactElement } from 'react';
import { Checkbox, Content, Form, FormGroup, FormSelect, FormSelectOption } from '@patternfly/react-core';
import { put } from '../kube/client';
import { useList } from '../kube/lists';
import { kinds, subresource, subresourceGroup } from '../kube/paths';
import { bytes, memoryText } from '../kube/quantity';
import type { Claim, MachineSpec, VolumeStatus } from '../kube/types';
import { useRights } from '../kube/userights';
import { Act, denied, Foreign } from '../parts/basics';
import { Confirm } from '../parts/confirm';
import { PlainTable } from '../parts/tables';
import { useNotify } from '../shell/notify';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { diskRows, nicRows, type DiskRow } from './devicerows';
import type { Machine } from './page';
import { isFinal } from './state';

const d = t.disks;

function sizeOf(status: VolumeStatus | undefined): string {
  const capacity = status?.persistentVolumeClaimInfo?.capacity?.storage;
  if (capacity) return memoryText(capacity);
  return status?.size ? bytes(status.size) : '';
}

function runs(machine: Machine): boolean {
  return machine.vmi !== undefined && !isFinal(machine.vmi);
}

// A change of the VM lasts; a change of the VMI only until the next start. A stopped machine has only the VM.
async function change(machine: Machine, verb: 'addvolume' | 'removevolume', body: unknown, persist: boolean): Promise<void> {
  const kind = persist && machine.vm ? kinds.vm : kinds.vmi;
  await put(subresource(kind, machine.namespace, machine.name, verb), body);
}

function PersistChoice({ machine, persist, set }: { machine: Machine; persist: boolean; set: (on: boolean) => void }): ReactElement {
  return (
    <Checkbox
      id="persist" label={d.persist} isChecked={persist} isDisabled={!machine.vm || !runs(machine)} onChange={(_e, on) => {
        set(on);
      }}
    />
  );
}

function Plug({ machine, used, close }: { machine: Machine; used: ReadonlySet<string>; close: () => void }): ReactElement {
  const claims = useList<Claim>(kinds.claim, machine.namespace);
  const notify = useNotify();
  const [claim, setClaim] = useState('');
  const [persist, setPersist] = useState(machine.vm !== undefined);
  const free = [...claims.byKey.values()].filter((c) => !used.has(c.metadata.name));
  const run = async (): Promise<void> => {
    const options = {
      name: claim,
      disk: { name: claim, disk: { bus: 'scsi' }, serial: claim.slice(0, 36) },
      volumeSource: { persistentVolumeClaim: { claimName: claim, hotpluggable: true } },
    };
    await change(machine, 'addvolume', options, persist);
    notify.done(d.added(shown(claim, 80)));
  };
  return (
    <Confirm title={d.plugTitle} action={d.plug} blocked={claim === ''} run={run} close={close}>
      <p>{d.plugText}</p>
      <Form onSubmit={(e) => {
        e.preventDefault();
      }}>
        <FormGroup label={d.claim} fieldId="claim">
          <FormSelect id="claim" value={claim} onChange={(_e, value) => {
            setClaim(value);
          }}>
            <FormSelectOption value="" label={free.length === 0 && claims.complete ? d.noClaims : d.choose} />
            {free.map((c) => (
              <FormSelectOption
                key={c.metadata.name} value={c.metadata.name}
                label={`${shown(c.metadata.name, 80)} – ${memoryText(c.status?.capacity?.storage ?? c.spec?.resources?.requests?.storage)}, ${shown(c.status?.phase, 20)}`}
              />
            ))}
          </FormSelect>
        </FormGroup>
        <PersistChoice machine={machine} persist={persist} set={setPersist} />
      </Form>
    </Confirm>
  );
}

function Unplug({ machine, row, close }: { machine: Machine; row: DiskRow; close: () => void }): ReactElement {
  const notify = useNotify();
  const [persist, setPersist] = useState(row.inTemplate);
  const run = async (): Promise<void> => {
    await change(machine, 'removevolume', { name: row.name }, persist);
    notify.done(d.removed(shown(row.name, 80)));
  };
  return (
    <Confirm title={d.unplugTitle(shown(row.name, 80))} action={d.unplug} danger run={run} close={close}>
      <p>{d.unplugText}</p>
      <PersistChoice machine={machine} persist={persist} set={setPersist} />
    </Confirm>
  );
}

function Disks({ machine, spec }: { machine: Machine; spec: MachineSpec }): ReactElement {
  const may = useRights(machine.namespace);
  const [asked, setAsked] = useState<DiskRow | 'plug'>();
  const rows = diskRows(spec, machine.vm?.spec.template?.spec, machine.vmi?.status?.volumeStatus ?? []);
  const resource = machine.vm ? 'virtualmachines' : 'virtualmachineinstances';
  const right = (verb: string): string => denied(may, { verb: 'update', group: subresourceGroup, resource: `${resource}/${verb}` });
  const close = (): void => {
    setAsked(undefined);
  };
  return (
    <section className="dd-stack">
      <div className="dd-tools">
        <Content component="h2">{d.disks}</Content>
        <Act small reason={right('addvolume')} onClick={() => {
          setAsked('plug');
        }}>{d.plug}</Act>
      </div>
      <PlainTable
        label={d.disks} narrow={[d.bus, d.size, d.target, d.actions]} heads={[d.name, d.bus, d.source, d.size, d.state, d.target, d.actions]} empty={d.noDisks}
        rows={rows.map((row) => ({
          key: row.name,
          cells: [
            <Foreign key="n" text={row.name} />, <Foreign key="b" text={row.bus} />,
            <Foreign key="s" text={row.source === '' ? d.noVolume : row.source} />, <Foreign key="z" text={sizeOf(row.status)} />,
            <Foreign key="p" text={[row.status?.phase, row.status?.phase === 'Ready' ? '' : row.status?.message].filter(Boolean).join(': ')} />,
            <Foreign key="t" text={row.status?.target} />,
            <Act
              key="a" small variant="link" label={`${d.unplug} ${shown(row.name, 80)}`}
              reason={right('removevolume') || (row.pluggable ? '' : d.unplugFixed)} onClick={() => {
                setAsked(row);
              }}
            >{d.unplug}</Act>,
          ],
        }))}
      />
      {asked === 'plug' && <Plug machine={machine} used={new Set(rows.map((r) => r.claim))} close={close} />}
      {asked !== undefined && asked !== 'plug' && <Unplug machine={machine} row={asked} close={close} />}
    </section>
  );
}

export function DevicesTab({ machine }: { machine: Machine }): ReactElement {
  const spec = (runs(machine) ? machine.vmi?.spec : machine.vm?.spec.template?.spec) ?? {};
  return (
    <div className="dd-stack">
      <Disks machine={machine} spec={spec} />
      <section>
        <Content component="h2">{d.nics}</Content>
        <PlainTable
          label={d.nics} heads={[d.name, d.network, d.binding, d.mac, d.address, d.link]} empty={d.noNICs}
          rows={nicRows(spec, machine.vmi?.status?.interfaces ?? [], d.podNetwork).map((n) => ({
            key: n.name,
            cells: [n.name, n.network, n.binding, n.mac, n.addresses, n.link].map((text, i) => <Foreign key={i} text={text} />),
          }))}
        />
      </section>
    </div>
  );
}

