// Migrations, the newest first.
import { useState, type ReactElement } from 'react';
import { PageSection, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { remove } from '../kube/client';
import { useList } from '../kube/lists';
import { kinds, single } from '../kube/paths';
import type { Migration } from '../kube/types';
import { useRights } from '../kube/userights';
import { obstacle, rightFor } from '../machine/actions';
import { condition } from '../machine/state';
import { Act, Age, denied, Foreign, ListAlert, Loading, StatusLabel } from '../parts/basics';
import { Live } from '../parts/live';
import { NamespaceChoice } from '../parts/namespaces';
import { PlainTable } from '../parts/tables';
import { PageTitle } from '../shell/frame';
import { useNotify } from '../shell/notify';
import { machineRoute, type Route } from '../shell/route';
import { goTo } from '../shell/useroute';
import { shown } from '../text/shown';
import { t } from '../text/en';

const m = t.migrations;
const most = 500;

function saysOf(migration: Migration): string {
  const state = migration.status?.migrationState;
  return state?.failureReason ?? condition(migration, 'drydock.dev/Waiting')?.message ?? '';
}

function Cancel({ migration }: { migration: Migration }): ReactElement {
  const namespace = migration.metadata.namespace ?? '';
  const may = useRights(namespace);
  const notify = useNotify();
  const [busy, setBusy] = useState(false);
  const o = obstacle('cancelMigration', { vm: undefined, vmi: undefined, migration });
  const reason = denied(may, rightFor('cancelMigration', false)) || (o ? t.obstacle(o) : '');
  const name = migration.metadata.name;
  const run = (): void => {
    setBusy(true);
    remove(single(kinds.migration, namespace, name))
      .then(() => {
        notify.done(m.canceled(shown(name, 80)));
      })
      .catch((error: unknown) => {
        notify.refused(t.action('cancelMigration'), error);
      })
      .finally(() => {
        setBusy(false);
      });
  };
  return <Act small variant="link" reason={reason} busy={busy} label={`${m.cancel} ${shown(name, 80)}`} onClick={run}>{m.cancel}</Act>;
}

export function MigrationsPage({ route }: { route: Extract<Route, { page: 'migrations' }> }): ReactElement {
  const list = useList<Migration>(kinds.migration, route.namespace);
  const all = [...list.byKey.values()]
    .sort((a, b) => (b.metadata.creationTimestamp ?? '').localeCompare(a.metadata.creationTimestamp ?? ''))
    .slice(0, most);
  return (
    <PageSection hasBodyWrapper={false}>
      <PageTitle title={m.title}><Live list={list} /></PageTitle>
      <ListAlert list={list} of={m.title} />
      <Toolbar inset={{ default: 'insetNone' }}>
        <ToolbarContent>
          <ToolbarItem>
            <NamespaceChoice id="namespace" all value={route.namespace} onChange={(namespace) => {
              goTo({ page: 'migrations', namespace });
            }} />
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {list.complete ? (
        <PlainTable
          label={m.title} narrow={[m.phase, m.started, m.actions]} heads={[m.machine, m.phase, m.from, m.to, m.started, m.says, m.actions]} empty={m.empty}
          rows={all.map((x) => {
            const state = x.status?.migrationState;
            return {
              key: `${x.metadata.namespace ?? ''}/${x.metadata.name}`,
              cells: [
                <span key="n" className="dd-lines">
                  <a href={machineRoute(x.metadata.namespace ?? '', x.spec.vmiName ?? '')}><Foreign text={x.spec.vmiName} /></a>
                  <small><Foreign text={x.metadata.namespace} /></small>
                </span>,
                <StatusLabel key="p" status={x.status?.phase ?? 'Pending'} />, <Foreign key="f" text={state?.sourceNode} />,
                <Foreign key="t" text={state?.targetNode} />, <Age key="a" of={state?.startTimestamp ?? x.metadata.creationTimestamp} />,
                <Foreign key="s" text={saysOf(x)} most={1000} />, <Cancel key="c" migration={x} />,
              ],
            };
          })}
        />
      ) : !list.failure && <Loading />}
    </PageSection>
  );
}
