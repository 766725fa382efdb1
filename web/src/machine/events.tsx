// Events of a machine, its instance and its pods.
import type { ReactElement } from 'react';
import { Label } from '@patternfly/react-core';
import { useList } from '../kube/lists';
import { kinds } from '../kube/paths';
import type { KubeEvent } from '../kube/types';
import { Age, Foreign, ListAlert, Loading } from '../parts/basics';
import { PlainTable } from '../parts/tables';
import { shown } from '../text/shown';
import { t } from '../text/en';
import type { Machine } from './page';

const e = t.events;
const most = 300;

export function timeOf(event: KubeEvent): string {
  return event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.firstTimestamp ?? event.metadata.creationTimestamp ?? '';
}

// Objects that belong to a machine have its name, or begin with their kind's prefix and its name.
export function concerns(event: KubeEvent, name: string): boolean {
  const of = event.involvedObject?.name ?? '';
  return of === name || of.startsWith(`${name}-`) || of.startsWith(`virt-launcher-${name}-`);
}

export function EventsTab({ machine }: { machine: Machine }): ReactElement {
  const list = useList<KubeEvent>(kinds.event, machine.namespace);
  const mine = [...list.byKey.values()]
    .filter((x) => concerns(x, machine.name))
    .sort((a, b) => timeOf(b).localeCompare(timeOf(a)))
    .slice(0, most);
  return (
    <div className="dd-stack">
      <ListAlert list={list} of={e.title} />
      {list.complete || list.failure ? (
        <PlainTable
          label={e.title} narrow={[e.when, e.type, e.count]} heads={[e.when, e.type, e.object, e.reason, e.message, e.count]} empty={e.empty}
          rows={mine.map((x) => ({
            key: x.metadata.name,
            cells: [
              <Age key="w" of={timeOf(x)} />,
              x.type === 'Warning' ? <Label key="t" isCompact status="warning">{shown(x.type, 20)}</Label> : <Foreign key="t" text={x.type} most={20} />,
              <Foreign key="o" text={`${x.involvedObject?.kind ?? ''} ${x.involvedObject?.name ?? ''}`} />,
              <Foreign key="r" text={x.reason} />, <Foreign key="m" text={x.message} most={1500} />,
              String(x.series?.count ?? x.count ?? 1),
            ],
          }))}
        />
      ) : <Loading />}
    </div>
  );
}
