// The list of machines.
import { useCallback, useDeferredValue, useEffect, useMemo, useState, type ReactElement } from 'react';
import {
  Button, Checkbox, EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter, FormSelect, FormSelectOption, PageSection, SearchInput, Toolbar,
  ToolbarContent, ToolbarGroup, ToolbarItem,
} from '@patternfly/react-core';
import { kinds } from '../kube/paths';
import { parseQuantity } from '../kube/quantity';
import { useList, type Followed } from '../kube/lists';
import type { VM, VMI } from '../kube/types';
import { ListAlert, Loading } from '../parts/basics';
import { Live } from '../parts/live';
import { NamespaceChoice } from '../parts/namespaces';
import { showPictures, usePictures } from '../pictures/choice';
import { LinkButton, PageTitle } from '../shell/frame';
import { formatRoute, type Route } from '../shell/route';
import { goTo, replaceRoute } from '../shell/useroute';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { BulkBar } from './bulkbar';
import { arrange, Rows, statuses, type Column, type Row } from './rows';
import { MachineTable } from './table';

type MachinesRoute = Extract<Route, { page: 'machines' }>;

function useRows(vms: Followed<VM>, vmis: Followed<VMI>): Row[] {
  const [rows] = useState(() => new Rows());
  return useMemo(() => rows.of(vms.byKey, vmis.byKey), [rows, vms.byKey, vmis.byKey]);
}

interface FilterProps {
  route: MachinesRoute;
  rows: readonly Row[];
  count: string;
  pictures: boolean;
}

function Filters({ route, rows, count, pictures }: FilterProps): ReactElement {
  const known = useMemo(() => statuses(rows), [rows]);
  if (route.status !== '' && !known.some(([s]) => s === route.status)) known.push([route.status, 0]);
  return (
    <Toolbar inset={{ default: 'insetNone' }}>
      <ToolbarContent>
        <ToolbarGroup variant="filter-group" className="dd-filters">
          <ToolbarItem>
            <NamespaceChoice id="namespace" all value={route.namespace} onChange={(namespace) => {
              goTo({ ...route, namespace });
            }} />
          </ToolbarItem>
          <ToolbarItem>
            <SearchInput
              aria-label={t.machines.find} placeholder={t.machines.findShort} value={route.words}
              onChange={(_e, words) => {
                replaceRoute({ ...route, words });
              }}
              onClear={() => {
                replaceRoute({ ...route, words: '' });
              }}
            />
          </ToolbarItem>
          <ToolbarItem>
            <FormSelect aria-label={t.machines.statusFilter} value={route.status} onChange={(_e, status) => {
              replaceRoute({ ...route, status });
            }}>
              <FormSelectOption value="" label={t.machines.anyStatus} />
              {known.map(([s, n]) => <FormSelectOption key={s} value={s} label={`${shown(t.status(s), 60) || t.noStatus} (${String(n)})`} />)}
            </FormSelect>
          </ToolbarItem>
        </ToolbarGroup>
        <ToolbarItem alignSelf="center">
          <Checkbox id="pictures" label={t.pictures.show} isChecked={pictures} onChange={(_e, on) => {
            showPictures(on);
          }} />
        </ToolbarItem>
        <ToolbarItem alignSelf="center"><span role="status">{count}</span></ToolbarItem>
      </ToolbarContent>
    </Toolbar>
  );
}

function Empty({ route, any }: { route: MachinesRoute; any: boolean }): ReactElement {
  return (
    <EmptyState titleText={any ? t.machines.noMatchTitle : t.machines.emptyTitle} headingLevel="h2">
      <EmptyStateBody>{any ? t.machines.noMatch : t.machines.empty}</EmptyStateBody>
      <EmptyStateFooter>
        <EmptyStateActions>
          {any ? (
            <Button variant="link" onClick={() => {
              replaceRoute({ ...route, words: '', status: '' });
            }}>
              {t.machines.clearFilter}
            </Button>
          ) : <LinkButton href={formatRoute({ page: 'create', namespace: route.namespace })}>{t.nav.create}</LinkButton>}
        </EmptyStateActions>
      </EmptyStateFooter>
    </EmptyState>
  );
}

interface Order {
  column: Column;
  descending: boolean;
}

// Who may not list all namespaces begins with the one of the kubeconfig.
function useOwnNamespace(route: MachinesRoute, refused: boolean, namespace: string): void {
  useEffect(() => {
    if (refused && route.namespace === '' && namespace !== '') replaceRoute({ ...route, namespace });
  }, [route, refused, namespace]);
}

export function MachinesPage({ route, namespace }: { route: MachinesRoute; namespace: string }): ReactElement {
  const vms = useList<VM>(kinds.vm, route.namespace);
  const vmis = useList<VMI>(kinds.vmi, route.namespace);
  useOwnNamespace(route, vms.failure?.code === 403, namespace);
  const rows = useRows(vms, vmis);
  const [order, setOrder] = useState<Order>({ column: 'name', descending: false });
  const words = useDeferredValue(route.words);
  const shownRows = useMemo(
    () => arrange(rows, { words, status: route.status, ...order }, parseQuantity),
    [rows, words, route.status, order],
  );
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const select = useCallback((key: string, on: boolean) => {
    setSelected((old) => {
      const next = new Set(old);
      if (on) next.add(key);
      else next.delete(key);
      return next;
    });
  }, []);
  const selectAll = useCallback((on: boolean) => {
    setSelected(new Set(on ? shownRows.map((r) => r.key) : []));
  }, [shownRows]);
  const sort = useCallback((column: Column, descending: boolean) => {
    setOrder({ column, descending });
  }, []);
  const chosen = useMemo(() => rows.filter((r) => selected.has(r.key)), [rows, selected]);
  const pictures = usePictures();
  const known = vms.complete || vmis.complete;
  return (
    <PageSection hasBodyWrapper={false}>
      <PageTitle title={t.machines.title}>
        <Live list={vms} />
        <LinkButton href={formatRoute({ page: 'create', namespace: route.namespace })}>{t.nav.create}</LinkButton>
      </PageTitle>
      <ListAlert list={vms} of={t.machines.title} />
      {!vms.failure && <ListAlert list={vmis} of={t.machines.title} />}
      <Filters route={route} rows={rows} count={known ? t.count.shownOf(shownRows.length, rows.length) : ''} pictures={pictures} />
      <BulkBar rows={chosen} clear={() => {
        setSelected(new Set());
      }} />
      {shownRows.length > 0 && (
        <MachineTable rows={shownRows} selected={selected} select={select} selectAll={selectAll} sort={sort} pictures={pictures} {...order} />
      )}
      {shownRows.length === 0 && known && <Empty route={route} any={rows.length > 0} />}
      {!known && !vms.failure && <Loading />}
    </PageSection>
  );
}
