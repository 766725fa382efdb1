// Snapshots of a machine, and restores from them.
import { useState, type ReactElement } from 'react';
import { Content, Form, FormGroup, TextInput } from '@patternfly/react-core';
import { post, remove } from '../kube/client';
import { useList } from '../kube/lists';
import { collection, kinds, single, type Kind } from '../kube/paths';
import type { Clone, Restore, Snapshot } from '../kube/types';
import { useRights } from '../kube/userights';
import { Act, Age, denied, Foreign, ListAlert } from '../parts/basics';
import { Confirm } from '../parts/confirm';
import { PlainTable } from '../parts/tables';
import { useNotify } from '../shell/notify';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { CloneDialog, CloneTable } from './clones';
import { isOf } from './cloning';
import type { Machine } from './page';
import { condition, isFinal } from './state';

const s = t.snapshots;
const apiVersion = 'snapshot.kubevirt.io/v1beta1';

export function snapshotName(machine: string, now: Date): string {
  return `${machine.slice(0, 40)}-${now.toISOString().slice(0, 19).replace(/[-:]/g, '').replace('T', '-')}`;
}

function target(machine: Machine): unknown {
  return { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name: machine.name };
}

function saysOf(of: Snapshot | Restore): string {
  const failed = condition(of, 'Failure');
  if (failed?.status === 'True') return failed.message ?? failed.reason ?? '';
  const c = condition(of, 'Progressing');
  return c?.message ?? c?.reason ?? '';
}

function Take({ machine, close }: { machine: Machine; close: () => void }): ReactElement {
  const [name, setName] = useState(() => snapshotName(machine.name, new Date()));
  const notify = useNotify();
  const run = async (): Promise<void> => {
    const body = { apiVersion, kind: 'VirtualMachineSnapshot', metadata: { name }, spec: { source: target(machine) } };
    await post(collection(kinds.snapshot, machine.namespace), body);
    notify.done(s.taken(shown(name, 80)));
  };
  return (
    <Confirm title={s.takeTitle} action={s.take} blocked={name === ''} run={run} close={close}>
      <Form onSubmit={(e) => {
        e.preventDefault();
      }}>
        <FormGroup label={s.name} fieldId="snapshot-name">
          <TextInput id="snapshot-name" value={name} onChange={(_e, value) => {
            setName(value);
          }} />
        </FormGroup>
      </Form>
    </Confirm>
  );
}

interface AskProps {
  machine: Machine;
  snapshot: Snapshot;
  close: () => void;
}

function Back({ machine, snapshot, close }: AskProps): ReactElement {
  const notify = useNotify();
  const runs = machine.vmi !== undefined && !isFinal(machine.vmi);
  const run = async (): Promise<void> => {
    const name = snapshot.metadata.name;
    await post(collection(kinds.restore, machine.namespace), {
      apiVersion,
      kind: 'VirtualMachineRestore',
      metadata: { generateName: `${name.slice(0, 50)}-` },
      spec: {
        target: target(machine), virtualMachineSnapshotName: name, ...(runs ? { targetReadinessPolicy: 'StopTarget' } : {}),
      },
    });
    notify.done(s.restored(shown(machine.name, 80)));
  };
  return (
    <Confirm title={s.restoreTitle(shown(snapshot.metadata.name, 80))} action={s.restore} danger run={run} close={close}>
      <p>{s.restoreText}</p>
      {runs && <p>{s.restoreRuns}</p>}
    </Confirm>
  );
}

function Delete({ machine, snapshot, close }: AskProps): ReactElement {
  const notify = useNotify();
  const run = async (): Promise<void> => {
    await remove(single(kinds.snapshot, machine.namespace, snapshot.metadata.name));
    notify.done(s.deleted(shown(snapshot.metadata.name, 80)));
  };
  return (
    <Confirm title={s.deleteTitle(shown(snapshot.metadata.name, 80))} action={s.delete} danger run={run} close={close}>
      <p>{s.deleteText}</p>
    </Confirm>
  );
}

function byAge<T extends Snapshot | Restore | Clone>(items: ReadonlyMap<string, T>, of: (item: T) => boolean): T[] {
  return [...items.values()]
    .filter(of)
    .sort((a, b) => (b.metadata.creationTimestamp ?? '').localeCompare(a.metadata.creationTimestamp ?? ''));
}

function volumesOf(snapshot: Snapshot): string {
  const volumes = snapshot.status?.snapshotVolumes;
  const excluded = volumes?.excludedVolumes ?? [];
  return [
    ...(volumes?.includedVolumes ?? []), ...(excluded.length > 0 ? [s.excluded(excluded.join(', '))] : []),
  ].join(', ');
}

type Asked = { what: 'take' } | { what: 'restore' | 'delete' | 'clone'; snapshot: Snapshot };

interface ActionsProps {
  snapshot: Snapshot;
  right: (verb: string, kind: Kind) => string;
  ask: (asked: Asked) => void;
}

function SnapshotActions({ snapshot, right, ask }: ActionsProps): ReactElement {
  const name = shown(snapshot.metadata.name, 80);
  const ready = snapshot.status?.readyToUse ? '' : s.notReady;
  const reasons = {
    restore: right('create', kinds.restore) || ready, clone: right('create', kinds.clone) || ready, delete: right('delete', kinds.snapshot),
  };
  return (
    <span className="dd-tools">
      {(['restore', 'clone', 'delete'] as const).map((what) => (
        <Act key={what} small variant="link" label={`${s[what]} ${name}`} reason={reasons[what]} onClick={() => {
          ask({ what, snapshot });
        }}>{s[what]}</Act>
      ))}
    </span>
  );
}

export function SnapshotsTab({ machine }: { machine: Machine }): ReactElement {
  const snapshots = useList<Snapshot>(kinds.snapshot, machine.namespace);
  const restores = useList<Restore>(kinds.restore, machine.namespace);
  const clones = useList<Clone>(kinds.clone, machine.namespace);
  const may = useRights(machine.namespace);
  const [asked, setAsked] = useState<Asked>();
  const right = (verb: string, kind: Kind): string => denied(may, { verb, group: kind.group, resource: kind.resource });
  const close = (): void => {
    setAsked(undefined);
  };
  const mine = byAge(snapshots.byKey, (x) => x.spec.source?.kind === 'VirtualMachine' && x.spec.source.name === machine.name);
  const backs = byAge(restores.byKey, (x) => x.spec.target?.name === machine.name);
  const names = new Set(mine.map((x) => x.metadata.name));
  const copies = byAge(clones.byKey, (x) => isOf(x, machine.name, names));
  return (
    <div className="dd-stack">
      <div className="dd-tools">
        <Content component="h2">{s.title}</Content>
        <Act small reason={right('create', kinds.snapshot) || (machine.vm ? '' : s.noVM)} onClick={() => {
          setAsked({ what: 'take' });
        }}>{s.take}</Act>
      </div>
      <ListAlert list={snapshots} of={s.title} />
      <PlainTable
        label={s.title} narrow={[s.created, s.actions]} heads={[s.name, s.phase, s.created, s.volumes, s.actions]} empty={snapshots.complete ? s.empty : t.loading}
        rows={mine.map((x) => ({
          key: x.metadata.name,
          cells: [
            <Foreign key="n" text={x.metadata.name} />,
            <Foreign key="p" text={x.status?.readyToUse ? s.ready : [x.status?.phase ?? 'Pending', saysOf(x)].filter(Boolean).join(': ')} />,
            <Age key="a" of={x.status?.creationTime ?? x.metadata.creationTimestamp} />, <Foreign key="v" text={volumesOf(x)} />,
            <SnapshotActions key="b" snapshot={x} right={right} ask={setAsked} />,
          ],
        }))}
      />
      {backs.length > 0 && (
        <section>
          <Content component="h2">{s.restores}</Content>
          <PlainTable
            label={s.restores} narrow={[s.created]} heads={[s.name, s.from, s.phase, s.created]}
            rows={backs.map((x) => ({
              key: x.metadata.name,
              cells: [
                <Foreign key="n" text={x.metadata.name} />, <Foreign key="f" text={x.spec.virtualMachineSnapshotName} />,
                x.status?.complete ? s.complete : <span key="p">{s.notComplete}: <Foreign text={saysOf(x)} /></span>,
                <Age key="a" of={x.metadata.creationTimestamp} />,
              ],
            }))}
          />
        </section>
      )}
      <CloneTable clones={copies} />
      {asked?.what === 'take' && <Take machine={machine} close={close} />}
      {asked?.what === 'restore' && <Back machine={machine} snapshot={asked.snapshot} close={close} />}
      {asked?.what === 'clone' && (
        <CloneDialog namespace={machine.namespace} source={{ kind: 'VirtualMachineSnapshot', name: asked.snapshot.metadata.name }} runs={false} close={close} />
      )}
      {asked?.what === 'delete' && <Delete machine={machine} snapshot={asked.snapshot} close={close} />}
    </div>
  );
}
