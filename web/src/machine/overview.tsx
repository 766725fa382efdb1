// What a machine is, what it waits for, and which changes it does not have yet.
import { useEffect, useState, type ReactElement, type ReactNode } from 'react';
import {
  Alert, Card, CardBody, CardTitle, ClipboardCopy, Content, DescriptionList, DescriptionListDescription, DescriptionListGroup,
  DescriptionListTerm, ExpandableSection, Progress,
} from '@patternfly/react-core';
import { request } from '../kube/client';
import { kinds, subresource } from '../kube/paths';
import { memoryText } from '../kube/quantity';
import type { Condition, VMI } from '../kube/types';
import { useRights } from '../kube/userights';
import { Age, FailureAlert, Foreign, StatusLabel } from '../parts/basics';
import { PlainTable } from '../parts/tables';
import { usePictures } from '../pictures/choice';
import { hasPicture, Picture } from '../pictures/picture';
import { machineRoute } from '../shell/route';
import { shown } from '../text/shown';
import { t } from '../text/en';
import type { Machine } from './page';
import { pendingChanges, type Waiting } from './pending';
import { addresses, condition, currentCPUs, currentMemory, isFinal, isTrue, statusOf, waits } from './state';

const o = t.overview;

function Term({ name, children }: { name: string; children: ReactNode }): ReactElement {
  return (
    <DescriptionListGroup>
      <DescriptionListTerm>{name}</DescriptionListTerm>
      <DescriptionListDescription>{children}</DescriptionListDescription>
    </DescriptionListGroup>
  );
}

function Panel({ title, children }: { title: string; children: ReactNode }): ReactElement {
  return (
    <Card isCompact>
      <CardTitle component="h2">{title}</CardTitle>
      <CardBody>{children}</CardBody>
    </Card>
  );
}

function Waits({ machine }: { machine: Machine }): ReactElement | null {
  const list = waits(machine.vm, machine.vmi);
  const failed = machine.vm?.status?.startFailure;
  if (list.length === 0 && !failed?.consecutiveFailCount) return null;
  return (
    <section aria-label={o.waits} className="dd-stack">
      {list.map((w) => (
        <Alert key={w.condition + w.message} isInline variant={w.severity} title={shown(w.reason === '' ? w.condition : w.reason, 100)} component="h2">
          <Foreign text={w.message} most={2000} />
        </Alert>
      ))}
      {failed?.consecutiveFailCount ? (
        <Alert isInline variant="warning" title={o.startFailures(failed.consecutiveFailCount)} component="h2">
          {failed.retryAfterTimestamp && <>{o.nextTry}: {shown(new Date(failed.retryAfterTimestamp).toLocaleTimeString(), 40)}</>}
        </Alert>
      ) : null}
    </section>
  );
}

function waitText(w: Waiting): string {
  switch (w.kind) {
    case 'says': return w.message;
    case 'restart': return t.pending.restart(w.message);
    case 'migration':
      if (w.immovable !== undefined) return t.pending.immovable(w.immovable, w.message);
      return w.by === undefined ? t.pending.migration(w.message) : t.pending.by(w.by, w.phase ?? '', w.message);
    case 'place': return t.pending.place(w.message);
    case 'plug': return t.pending.plug;
    case 'unplug': return t.pending.unplug;
    case 'volume': return t.pending.volume(w.phase, w.message);
    case 'afterMigration': return t.pending.afterMigration(w.by, w.phase);
    case 'node': return t.pending.node(w.message);
  }
}

function Pending({ machine }: { machine: Machine }): ReactElement | null {
  if (!machine.vm) return null;
  const list = pendingChanges({ vm: machine.vm, vmi: machine.vmi, migrations: machine.migrations });
  if (list.length === 0) return null;
  return (
    <Panel title={o.pending}>
      <PlainTable
        label={o.pending} narrow={[o.effect]} heads={[o.change, o.effect, o.waitsFor]}
        rows={list.map((c, i) => ({
          key: String(i),
          cells: [
            c.path === '' ? o.wholeMachine : <code key="p"><Foreign text={c.path} /></code>,
            t.pending.effect(c.effect), <Foreign key="w" text={waitText(c.waitsFor)} most={1000} />,
          ],
        }))}
      />
    </Panel>
  );
}

function percentOf(message: string): number | undefined {
  const found = /^(\d{1,3})% of the /.exec(message);
  return found ? Math.min(100, Number(found[1])) : undefined;
}

function MigrationPanel({ machine }: { machine: Machine }): ReactElement | null {
  const m = machine.migration;
  if (!m) return null;
  const phase = m.status?.phase ?? 'Pending';
  const says = condition(machine.vmi, 'drydock.dev/MigrationProgress')?.message ?? condition(m, 'drydock.dev/Waiting')?.message ?? '';
  const percent = percentOf(says);
  const state = m.status?.migrationState ?? machine.vmi?.status?.migrationState;
  return (
    <Panel title={o.migration}>
      <p>{o.migrationOf(shown(phase, 60))}</p>
      {percent !== undefined && <Progress value={percent} aria-label={o.migration} title="" measureLocation="outside" />}
      {says !== '' && <p role="status"><Foreign text={says} most={1000} /></p>}
      <DescriptionList isCompact isHorizontal>
        {state?.sourceNode && <Term name={o.from}><Foreign text={state.sourceNode} /></Term>}
        {state?.targetNode && <Term name={o.to}><Foreign text={state.targetNode} /></Term>}
      </DescriptionList>
    </Panel>
  );
}

interface MaintenanceState {
  holder?: { name?: string; since?: string; phase?: string; node?: string };
  queue?: { name?: string }[];
  message?: string;
}

function useMaintenance(machine: Machine): { state?: MaintenanceState; error?: unknown } {
  const [answer, setAnswer] = useState<{ state?: MaintenanceState; error?: unknown }>({});
  const locked = machine.vm?.metadata.labels?.['kubevirt.io/maintenance'];
  const version = machine.vm?.metadata.resourceVersion;
  const { namespace, name } = machine;
  useEffect(() => {
    if (locked === undefined) return undefined;
    const abort = new AbortController();
    request<MaintenanceState>(subresource(kinds.vm, namespace, name, 'maintenance'), { signal: abort.signal })
      .then((state) => {
        setAnswer({ state });
      })
      .catch((error: unknown) => {
        if (!abort.signal.aborted) setAnswer({ error });
      });
    return () => {
      abort.abort();
    };
  }, [locked, version, namespace, name]);
  return locked === undefined ? {} : { state: { holder: { name: locked }, ...answer.state }, error: answer.error };
}

function Maintenance({ machine }: { machine: Machine }): ReactElement | null {
  const { state, error } = useMaintenance(machine);
  if (!state) return null;
  const holder = state.holder?.name;
  return (
    <Panel title={o.maintenance}>
      {error !== undefined && <FailureAlert error={error} />}
      {state.message && <p><Foreign text={state.message} /></p>}
      <DescriptionList isCompact>
        <Term name={o.holder}>
          {holder ? <><Foreign text={holder} /> <Age of={state.holder?.since} /></> : o.noHolder}
        </Term>
        {(state.queue?.length ?? 0) > 0 && <Term name={o.queue}><Foreign text={state.queue?.map((p) => p.name).join(', ')} /></Term>}
      </DescriptionList>
      {holder && (
        <ClipboardCopy isReadOnly hoverTip="" clickTip="" textAriaLabel={o.holder}>
          {o.use(shown(machine.namespace, 63), shown(holder, 253))}
        </ClipboardCopy>
      )}
    </Panel>
  );
}

// Facts that only a running guest has.
function Live({ vmi }: { vmi: VMI }): ReactElement {
  const system = vmi.status?.guestOSInfo?.prettyName ?? vmi.status?.guestOSInfo?.name;
  const started = vmi.status?.phaseTransitionTimestamps?.find((p) => p.phase === 'Running')?.phaseTransitionTimestamp;
  const accelerated = condition(vmi, 'drydock.dev/Accelerated');
  return (
    <>
      <Term name={o.node}><Foreign text={vmi.status?.nodeName ?? t.none} /></Term>
      <Term name={o.addresses}><Foreign text={addresses(vmi).join(', ') || t.none} /></Term>
      {system && <Term name={o.os}><Foreign text={system} /></Term>}
      <Term name={o.agent}>{isTrue(vmi, 'AgentConnected') ? o.agentYes : o.agentNo}</Term>
      {accelerated && <Term name={o.acceleration}>{accelerated.status === 'True' ? o.yes : <Foreign text={accelerated.message ?? o.no} />}</Term>}
      {started && <Term name={o.started}><Age of={started} /></Term>}
    </>
  );
}

function Summary({ machine }: { machine: Machine }): ReactElement {
  const { vm, vmi } = machine;
  const cpus = currentCPUs(vm, vmi);
  const memory = currentMemory(vm, vmi);
  return (
    <Panel title={o.summary}>
      <DescriptionList isCompact isHorizontal horizontalTermWidthModifier={{ default: '14ch' }} columnModifier={{ xl: '2Col' }}>
        <Term name={o.status}><StatusLabel status={statusOf(vm, vmi)} /></Term>
        {vm && <Term name={o.strategy}><Foreign text={vm.spec.runStrategy ?? (vm.spec.running ? 'Always' : 'Halted')} /></Term>}
        <Term name={o.cpus}>{cpus === undefined ? o.byInstanceType : o.cpuText(cpus)}</Term>
        <Term name={o.memory}>{memory === undefined ? o.byInstanceType : <Foreign text={memoryText(memory)} />}</Term>
        {vm?.spec.instancetype?.name && <Term name={o.instanceType}><Foreign text={vm.spec.instancetype.name} /></Term>}
        {vm?.spec.preference?.name && <Term name={o.preference}><Foreign text={vm.spec.preference.name} /></Term>}
        {vmi && !isFinal(vmi) && <Live vmi={vmi} />}
        <Term name={o.created}><Age of={(vm ?? vmi)?.metadata.creationTimestamp} /></Term>
      </DescriptionList>
    </Panel>
  );
}

function ScreenPicture({ machine }: { machine: Machine }): ReactElement | null {
  const wanted = usePictures();
  const may = useRights(machine.namespace);
  if (!wanted || !hasPicture(machine.vmi, may)) return null;
  return (
    <Panel title={t.pictures.title}>
      <a className="dd-screenshot" href={machineRoute(machine.namespace, machine.name, 'screen')}><Picture vmi={machine.vmi} /></a>
    </Panel>
  );
}

function allConditions(machine: Machine): Condition[] {
  const own = machine.vm?.status?.conditions ?? [];
  const more = machine.vmi?.status?.conditions ?? [];
  return [...own, ...more.filter((c) => !own.some((d) => d.type === c.type && d.message === c.message && d.status === c.status))];
}

function Conditions({ machine }: { machine: Machine }): ReactElement | null {
  const list = allConditions(machine);
  if (list.length === 0) return null;
  return (
    <ExpandableSection toggleText={`${o.conditions} (${String(list.length)})`} toggleId="conditions-toggle" contentId="conditions">
      <PlainTable
        label={o.conditions} narrow={[o.value, o.since]} heads={[o.condition, o.value, o.reason, o.message, o.since]}
        rows={list.slice(0, 100).map((c, i) => ({
          key: `${c.type}${String(i)}`,
          cells: [
            <Foreign key="t" text={c.type} />, <Foreign key="s" text={c.status} />, <Foreign key="r" text={c.reason} />,
            <Foreign key="m" text={c.message} most={2000} />, <Age key="a" of={c.lastTransitionTime} />,
          ],
        }))}
      />
    </ExpandableSection>
  );
}

export function Overview({ machine }: { machine: Machine }): ReactElement {
  return (
    <div className="dd-stack">
      <Content component="h2" className="pf-v6-u-screen-reader">{t.tab('overview')}</Content>
      <Waits machine={machine} />
      <MigrationPanel machine={machine} />
      <Maintenance machine={machine} />
      <Pending machine={machine} />
      <div className="dd-beside">
        <Summary machine={machine} />
        <ScreenPicture machine={machine} />
      </div>
      <Conditions machine={machine} />
    </div>
  );
}
