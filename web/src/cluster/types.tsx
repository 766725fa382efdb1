// Instance types and preferences, those of the cluster and those of namespaces.
import { useDeferredValue, type ReactElement } from 'react';
import { Content, Label, PageSection, SearchInput, Toolbar, ToolbarContent, ToolbarGroup, ToolbarItem } from '@patternfly/react-core';
import { useList, type Followed } from '../kube/lists';
import { kinds } from '../kube/paths';
import { memoryText } from '../kube/quantity';
import type { InstanceType, KubeObject, Preference } from '../kube/types';
import { Foreign, ListAlert, Loading } from '../parts/basics';
import { Live } from '../parts/live';
import { NamespaceChoice } from '../parts/namespaces';
import { PlainTable } from '../parts/tables';
import { PageTitle } from '../shell/frame';
import type { Route } from '../shell/route';
import { goTo, replaceRoute } from '../shell/useroute';
import { t } from '../text/en';
import { found } from '../volumes/state';
import { displayName, preferenceFacts, typeFacts } from './typefacts';

const p = t.types;
const most = 500;

function Scope({ of }: { of: KubeObject }): ReactElement {
  const { namespace } = of.metadata;
  return namespace === undefined ? <Label isCompact variant="outline">{p.cluster}</Label> : <Foreign text={namespace} />;
}

function Name({ of }: { of: KubeObject }): ReactElement {
  const more = displayName(of);
  return <span className="dd-name"><Foreign text={of.metadata.name} />{more !== '' && <small><Foreign text={more} /></small>}</span>;
}

function keyOf(of: KubeObject): string {
  return `${of.metadata.namespace ?? ''}/${of.metadata.name}`;
}

function both<T extends KubeObject>(own: Followed<T>, shared: Followed<T>, words: string): T[] {
  return found([...own.byKey.values(), ...shared.byKey.values()], words, (of) => [displayName(of)]).slice(0, most);
}

interface PartProps {
  title: string;
  lists: readonly Followed<KubeObject>[];
  children: ReactElement;
}

function Part({ title, lists, children }: PartProps): ReactElement {
  return (
    <section className="dd-stack dd-section">
      <Content component="h2">{title}</Content>
      {lists.map((list, i) => <ListAlert key={i} list={list} of={title} />)}
      {lists.some((list) => list.complete) ? children : !lists.some((list) => list.failure) && <Loading />}
    </section>
  );
}

export function TypesPage({ route }: { route: Extract<Route, { page: 'types' }> }): ReactElement {
  const types = useList<InstanceType>(kinds.instanceType, route.namespace);
  const clusterTypes = useList<InstanceType>(kinds.clusterInstanceType);
  const preferences = useList<Preference>(kinds.preference, route.namespace);
  const clusterPreferences = useList<Preference>(kinds.clusterPreference);
  const words = useDeferredValue(route.words);
  return (
    <PageSection hasBodyWrapper={false}>
      <PageTitle title={p.title}><Live list={clusterTypes} /></PageTitle>
      <Content component="p">{p.intro}</Content>
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
                aria-label={p.find} placeholder={t.machines.findShort} value={route.words}
                onChange={(_e, next) => {
                  replaceRoute({ ...route, words: next });
                }}
                onClear={() => {
                  replaceRoute({ ...route, words: '' });
                }}
              />
            </ToolbarItem>
          </ToolbarGroup>
        </ToolbarContent>
      </Toolbar>
      <div className="dd-stack">
        <Part title={p.types} lists={[types, clusterTypes]}>
          <PlainTable
            label={p.types} heads={[p.name, p.scope, p.cpus, p.memory, p.more]} narrow={[p.cpus, p.memory]} empty={p.noTypes}
            rows={both(types, clusterTypes, words).map((of) => ({
              key: keyOf(of),
              cells: [
                <Name key="n" of={of} />, <Scope key="s" of={of} />, String(of.spec?.cpu?.guest ?? ''),
                <Foreign key="m" text={memoryText(of.spec?.memory?.guest)} />, <Foreign key="x" text={typeFacts(of).map(p.fact).join(', ')} />,
              ],
            }))}
          />
        </Part>
        <Part title={p.preferences} lists={[preferences, clusterPreferences]}>
          <PlainTable
            label={p.preferences} heads={[p.name, p.scope, p.sets, p.needs]} empty={p.noPreferences}
            rows={both(preferences, clusterPreferences, words).map((of) => ({
              key: keyOf(of),
              cells: [
                <Name key="n" of={of} />, <Scope key="s" of={of} />, <Foreign key="x" text={preferenceFacts(of).map(p.fact).join(', ')} />,
                <Foreign key="r" text={p.requirements(of.spec?.requirements?.cpu?.guest, memoryText(of.spec?.requirements?.memory?.guest))} />,
              ],
            }))}
          />
        </Part>
      </div>
    </PageSection>
  );
}
