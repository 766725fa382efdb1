// One machine: its title, its actions and its tabs.
import { Suspense, useMemo, type ReactElement } from 'react';
import {
  Breadcrumb, BreadcrumbItem, EmptyState, EmptyStateBody, EmptyStateFooter, PageSection, Tab, Tabs, TabTitleText,
} from '@patternfly/react-core';
import { useList, type Followed } from '../kube/lists';
import { kinds } from '../kube/paths';
import type { Migration, VM, VMI } from '../kube/types';
import { Foreign, ListAlert, Loading, StatusLabel } from '../parts/basics';
import { Boundary } from '../parts/boundary';
import { lazily } from '../parts/lazily';
import { LinkButton, PageTitle } from '../shell/frame';
import { formatRoute, tabs, type Route, type Tab as TabName } from '../shell/route';
import { goTo } from '../shell/useroute';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { ActionBar } from './actionbar';
import { Overview } from './overview';
import { isOver, statusOf } from './state';

type MachineRoute = Extract<Route, { page: 'machine' }>;

export interface Machine {
  namespace: string;
  name: string;
  vm: VM | undefined;
  vmi: VMI | undefined;
  // newest first
  migrations: Migration[];
  // the one that has not ended
  migration: Migration | undefined;
}

const Console = lazily(() => import('./console').then((m) => ({ default: m.ConsoleTab })));
const Screen = lazily(() => import('./screen').then((m) => ({ default: m.ScreenTab })));
const Yaml = lazily(() => import('./yaml').then((m) => ({ default: m.YamlTab })));
const Devices = lazily(() => import('./devices').then((m) => ({ default: m.DevicesTab })));
const Snapshots = lazily(() => import('./snapshots').then((m) => ({ default: m.SnapshotsTab })));
const Events = lazily(() => import('./events').then((m) => ({ default: m.EventsTab })));

const contents: Record<TabName, (props: { machine: Machine }) => ReactElement> = {
  overview: Overview,
  console: ({ machine }) => <Console machine={machine} />,
  screen: ({ machine }) => <Screen machine={machine} />,
  disks: ({ machine }) => <Devices machine={machine} />,
  snapshots: ({ machine }) => <Snapshots machine={machine} />,
  events: ({ machine }) => <Events machine={machine} />,
  yaml: ({ machine }) => <Yaml machine={machine} />,
};

function only<T>(items: ReadonlyMap<string, T>): T | undefined {
  return [...items.values()][0];
}

interface Found {
  machine: Machine;
  vms: Followed<VM>;
  vmis: Followed<VMI>;
}

function useMachine(namespace: string, name: string): Found {
  const selection = { fields: `metadata.name=${name}` };
  const vms = useList<VM>(kinds.vm, namespace, selection);
  const vmis = useList<VMI>(kinds.vmi, namespace, selection);
  const all = useList<Migration>(kinds.migration, namespace);
  const migrations = useMemo(
    () => [...all.byKey.values()]
      .filter((m) => m.spec.vmiName === name)
      .sort((a, b) => (b.metadata.creationTimestamp ?? '').localeCompare(a.metadata.creationTimestamp ?? '')),
    [all.byKey, name],
  );
  const machine = { namespace, name, vm: only(vms.byKey), vmi: only(vmis.byKey), migrations, migration: migrations.find((m) => !isOver(m)) };
  return { machine, vms, vmis };
}

function Place({ route }: { route: MachineRoute }): ReactElement {
  return (
    <Breadcrumb aria-label={t.machine.breadcrumb}>
      <BreadcrumbItem to={formatRoute({ page: 'machines', namespace: '', words: '', status: '' })}>{t.machines.title}</BreadcrumbItem>
      <BreadcrumbItem to={formatRoute({ page: 'machines', namespace: route.namespace, words: '', status: '' })}>
        <Foreign text={route.namespace} most={63} />
      </BreadcrumbItem>
      <BreadcrumbItem isActive><Foreign text={route.name} most={63} /></BreadcrumbItem>
    </Breadcrumb>
  );
}

function Missing({ route }: { route: MachineRoute }): ReactElement {
  return (
    <EmptyState titleText={t.machine.missingTitle} headingLevel="h2">
      <EmptyStateBody>{t.machine.missing(shown(route.namespace, 63), shown(route.name, 253))}</EmptyStateBody>
      <EmptyStateFooter><LinkButton href="#/machines" variant="link">{t.notFound.back}</LinkButton></EmptyStateFooter>
    </EmptyState>
  );
}

const contentId = 'machine-part';

function Parts({ route, machine }: { route: MachineRoute; machine: Machine }): ReactElement {
  const Shown = contents[route.tab];
  return (
    <>
      <Tabs
        activeKey={route.tab} aria-label={t.machine.tabs} component="nav" className="dd-tabs"
        onSelect={(event, key) => {
          event.preventDefault();
          goTo({ ...route, tab: key as TabName });
        }}
      >
        {tabs.map((tab) => (
          <Tab key={tab} eventKey={tab} tabContentId={contentId} title={<TabTitleText>{t.tab(tab)}</TabTitleText>} href={formatRoute({ ...route, tab })} />
        ))}
      </Tabs>
      <div className="dd-tab" id={contentId}>
        <Boundary place={route.tab} heading="h2">
          <Suspense fallback={<Loading />}><Shown machine={machine} /></Suspense>
        </Boundary>
      </div>
    </>
  );
}

export function MachinePage({ route }: { route: MachineRoute }): ReactElement {
  const { machine, vms, vmis } = useMachine(route.namespace, route.name);
  const known = vms.complete && vmis.complete;
  const exists = machine.vm !== undefined || machine.vmi !== undefined;
  return (
    <PageSection hasBodyWrapper={false}>
      <Place route={route} />
      <PageTitle title={<Foreign text={route.name} most={253} />}>
        {exists && <StatusLabel status={statusOf(machine.vm, machine.vmi)} />}
        {exists && <ActionBar machine={machine} />}
      </PageTitle>
      <ListAlert list={vms} of={t.machines.title} />
      {!vms.failure && <ListAlert list={vmis} of={t.machines.title} />}
      {exists && <Parts route={route} machine={machine} />}
      {!exists && known && <Missing route={route} />}
      {!exists && !known && !vms.failure && <Loading />}
    </PageSection>
  );
}
