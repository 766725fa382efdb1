// The page that belongs to the address.
import { Suspense, useEffect, useState, type ReactElement } from 'react';
import { EmptyState, EmptyStateBody, EmptyStateFooter, PageSection } from '@patternfly/react-core';
import { MachinesPage } from '../machines/page';
import { Foreign, Loading } from '../parts/basics';
import { Boundary } from '../parts/boundary';
import { lazily } from '../parts/lazily';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { Frame, LinkButton } from './frame';
import { Notices } from './notify';
import type { Route } from './route';
import { account, openSession, sessionOver, type Opened } from './session';
import { SignIn } from './signin';
import { useRoute } from './useroute';

const MachinePage = lazily(() => import('../machine/page').then((m) => ({ default: m.MachinePage })));
const CreatePage = lazily(() => import('../create/page').then((m) => ({ default: m.CreatePage })));
const VolumesPage = lazily(() => import('../volumes/page').then((m) => ({ default: m.VolumesPage })));
const TypesPage = lazily(() => import('../cluster/types').then((m) => ({ default: m.TypesPage })));
const NodesPage = lazily(() => import('../cluster/nodes').then((m) => ({ default: m.NodesPage })));
const MigrationsPage = lazily(() => import('../cluster/migrations').then((m) => ({ default: m.MigrationsPage })));

function NotFound(): ReactElement {
  return (
    <PageSection hasBodyWrapper={false}>
      <EmptyState titleText={t.notFound.title} headingLevel="h1">
        <EmptyStateBody>{t.notFound.text}</EmptyStateBody>
        <EmptyStateFooter><LinkButton href="#/machines">{t.notFound.back}</LinkButton></EmptyStateFooter>
      </EmptyState>
    </PageSection>
  );
}

function Content({ route, namespace }: { route: Route; namespace: string }): ReactElement {
  switch (route.page) {
    case 'machines': return <MachinesPage route={route} namespace={namespace} />;
    case 'machine': return <MachinePage key={`${route.namespace}/${route.name}`} route={route} />;
    case 'create': return <CreatePage namespace={route.namespace === '' ? namespace : route.namespace} />;
    case 'volumes': return <VolumesPage route={route} namespace={namespace} />;
    case 'types': return <TypesPage route={route} />;
    case 'nodes': return <NodesPage />;
    case 'migrations': return <MigrationsPage route={route} />;
    case 'unknown': return <NotFound />;
  }
}

function titleOf(route: Route): string {
  switch (route.page) {
    case 'machine': return `${shown(route.name, 80)} – ${t.tab(route.tab)}`;
    case 'machines': return t.machines.title;
    case 'create': return t.create.title;
    case 'volumes': return t.volumes.title;
    case 'types': return t.types.title;
    case 'nodes': return t.nodes.title;
    case 'migrations': return t.migrations.title;
    case 'unknown': return t.notFound.title;
  }
}

// The place that a fault belongs to: words in a filter are no other place.
function placeOf(route: Route): string {
  return route.page === 'machine' ? `${route.namespace}/${route.name}` : route.page;
}

function Pages({ namespace }: { namespace: string }): ReactElement {
  const route = useRoute();
  const title = titleOf(route);
  useEffect(() => {
    document.title = `${title} – ${t.product}`;
  }, [title]);
  return (
    <Notices>
      <Frame page={route.page}>
        <Boundary place={placeOf(route)} heading="h1">
          <Suspense fallback={<PageSection hasBodyWrapper={false}><Loading /></PageSection>}>
            <Content route={route} namespace={namespace} />
          </Suspense>
        </Boundary>
      </Frame>
    </Notices>
  );
}

function Closed({ title, text, said }: { title: string; text: string; said: string }): ReactElement {
  return (
    <main>
      <EmptyState titleText={title} headingLevel="h1" variant="lg">
        {said !== '' && <EmptyStateBody><Foreign text={said} /></EmptyStateBody>}
        <EmptyStateBody>{text}</EmptyStateBody>
      </EmptyState>
    </main>
  );
}

export function App({ code }: { code: string | undefined }): ReactElement {
  const [opened, setOpened] = useState<Opened>();
  const [ended, setEnded] = useState<'known' | 'foreign'>();
  useEffect(() => {
    void openSession(code, (foreign) => {
      if (account() !== undefined) void sessionOver().then(setOpened);
      else setEnded(foreign ? 'foreign' : 'known');
    }).then(setOpened);
  }, [code]);
  if (ended) return <Closed title={t.session.endedTitle} text={ended === 'foreign' ? t.session.foreign : t.session.ended} said="" />;
  if (!opened) return <main aria-label={t.session.opening}><Loading /></main>;
  if ('signIn' in opened) return <SignIn provider={opened.provider} />;
  if ('failure' in opened) return <Closed title={t.session.noneTitle} text={t.session.none} said={opened.failure?.message ?? ''} />;
  return <Pages namespace={opened.facts.namespace} />;
}
