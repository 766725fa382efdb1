import { isName } from '../kube/paths';

// Addresses of the pages. They are in the fragment, which browsers never send to a server.

export const tabs = ['overview', 'console', 'screen', 'disks', 'snapshots', 'events', 'yaml'] as const;
export type Tab = (typeof tabs)[number];

export type Route =
  | { page: 'machines'; namespace: string; words: string; status: string }
  | { page: 'machine'; namespace: string; name: string; tab: Tab }
  | { page: 'create'; namespace: string }
  | { page: 'volumes'; namespace: string; words: string }
  | { page: 'types'; namespace: string; words: string }
  | { page: 'nodes' }
  | { page: 'migrations'; namespace: string }
  | { page: 'unknown'; address: string };

const pages = new Set(['machines', 'create', 'volumes', 'types', 'nodes', 'migrations']);

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function parseMachine(elements: string[]): Route | undefined {
  const [namespace, name, tab = 'overview'] = elements.map(decode);
  const known = tabs.find((t) => t === tab);
  if (!known || elements.length > 3) return undefined;
  if (namespace === undefined || name === undefined || !isName(namespace) || !isName(name)) return undefined;
  return { page: 'machine', namespace, name, tab: known };
}

export function parseRoute(hash: string): Route {
  const address = hash.replace(/^#/, '');
  const [path = '', search = ''] = address.split('?', 2);
  const [page = '', ...elements] = path.split('/').filter((e) => e !== '');
  const query = new URLSearchParams(search);
  const of = (name: string): string => query.get(name) ?? '';
  const namespace = of('namespace');
  if (page === 'machines' && elements.length > 0) return parseMachine(elements) ?? { page: 'unknown', address };
  if (page !== '' && (!pages.has(page) || elements.length > 0)) return { page: 'unknown', address };
  switch (page) {
    case 'create': return { page: 'create', namespace };
    case 'volumes':
    case 'types': return { page, namespace, words: of('find') };
    case 'nodes': return { page: 'nodes' };
    case 'migrations': return { page: 'migrations', namespace };
    default: return { page: 'machines', namespace, words: of('find'), status: of('status') };
  }
}

function query(values: Record<string, string>): string {
  const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== '')).toString();
  return text === '' ? '' : `?${text}`;
}

export function formatRoute(route: Route): string {
  switch (route.page) {
    case 'machines':
      return `#/machines${query({ namespace: route.namespace, find: route.words, status: route.status })}`;
    case 'machine': {
      const tab = route.tab === 'overview' ? '' : `/${route.tab}`;
      return `#/machines/${encodeURIComponent(route.namespace)}/${encodeURIComponent(route.name)}${tab}`;
    }
    case 'create': return `#/create${query({ namespace: route.namespace })}`;
    case 'volumes':
    case 'types': return `#/${route.page}${query({ namespace: route.namespace, find: route.words })}`;
    case 'nodes': return '#/nodes';
    case 'migrations': return `#/migrations${query({ namespace: route.namespace })}`;
    case 'unknown': return `#${route.address}`;
  }
}

export function machineRoute(namespace: string, name: string, tab: Tab = 'overview'): string {
  return formatRoute({ page: 'machine', namespace, name, tab });
}
