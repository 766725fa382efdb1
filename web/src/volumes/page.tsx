// Images and volumes: DataVolumes with their progress, DataSources, and claims.
import { useDeferredValue, useState, type ReactElement, type ReactNode } from 'react';
import { Content, PageSection, Progress, SearchInput, Toolbar, ToolbarContent, ToolbarGroup, ToolbarItem } from '@patternfly/react-core';
import { remove } from '../kube/client';
import { useList, type Followed } from '../kube/lists';
import { kinds, single } from '../kube/paths';
import { memoryText } from '../kube/quantity';
import type { Claim, DataSource, DataVolume, KubeObject } from '../kube/types';
import { useRights } from '../kube/userights';
import { condition } from '../machine/state';
import { Act, Age, denied, Foreign, ListAlert, Loading, ToneLabel } from '../parts/basics';
import { Confirm } from '../parts/confirm';
import { Live } from '../parts/live';
import { NamespaceChoice } from '../parts/namespaces';
import { PlainTable, type PlainRow } from '../parts/tables';
import { PageTitle } from '../shell/frame';
import { useNotify } from '../shell/notify';
import { machineRoute, type Route } from '../shell/route';
import { goTo, replaceRoute } from '../shell/useroute';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { ImportDialog } from './importdialog';
import { found, ownerOf, refersTo, sizeOf, sourceOf, volumePercent, volumeSays, volumeTone } from './state';

const v = t.volumes;
const most = 300;

type VolumesRoute = Extract<Route, { page: 'volumes' }>;

function Name({ of, children }: { of: KubeObject; children?: ReactNode }): ReactElement {
  return (
    <span className="dd-name">
      <Foreign text={of.metadata.name} />
      <small><Foreign text={of.metadata.namespace} /></small>
      {children}
    </span>
  );
}

function Owner({ of }: { of: DataVolume | Claim }): ReactElement | null {
  const owner = ownerOf(of);
  if (!owner) return null;
  if (owner.kind !== 'VirtualMachine') return <><Foreign text={owner.kind} /> <Foreign text={owner.name} /></>;
  return <a href={machineRoute(of.metadata.namespace ?? '', owner.name)}><Foreign text={owner.name} /></a>;
}

function Delete({ volume }: { volume: DataVolume }): ReactElement {
  const { name, namespace = '' } = volume.metadata;
  const may = useRights(namespace);
  const notify = useNotify();
  const [asked, setAsked] = useState(false);
  const reason = denied(may, { verb: 'delete', group: kinds.dataVolume.group, resource: kinds.dataVolume.resource })
    || (volume.metadata.deletionTimestamp ? t.obstacle('isDeleted') : '');
  return (
    <>
      <Act small variant="link" reason={reason} label={`${v.delete} ${shown(name, 80)}`} onClick={() => {
        setAsked(true);
      }}>{v.delete}</Act>
      {asked && (
        <Confirm
          title={v.deleteTitle(shown(name, 80))} action={v.delete} danger typed={name}
          run={async () => {
            await remove(single(kinds.dataVolume, namespace, name));
            notify.done(v.deleted(shown(name, 80)));
          }}
          close={() => {
            setAsked(false);
          }}
        >
          <p>{v.deleteText}</p>
        </Confirm>
      )}
    </>
  );
}

function State({ volume }: { volume: DataVolume }): ReactElement {
  const phase = volume.status?.phase ?? '';
  const percent = volumePercent(volume);
  const fills = percent !== undefined && percent < 100 && phase !== 'Succeeded' && phase !== 'Failed';
  return (
    <span className="dd-name">
      <span><ToneLabel tone={volumeTone(phase)} text={v.phase(phase)} /></span>
      {fills && <Progress value={Math.round(percent)} size="sm" aria-label={v.progressOf(shown(volume.metadata.name, 80))} />}
    </span>
  );
}

function volumeRow(volume: DataVolume): PlainRow {
  const source = sourceOf(volume);
  const says = volume.status?.phase === 'UploadReady' ? v.upload(shown(volume.metadata.namespace, 63), shown(volume.metadata.name, 253)) : volumeSays(volume);
  return {
    key: `${volume.metadata.namespace ?? ''}/${volume.metadata.name}`,
    cells: [
      <Name key="n" of={volume}><Owner of={volume} /></Name>, <State key="s" volume={volume} />, <Foreign key="w" text={says} most={1000} />,
      <span key="f">{v.source(source.kind)} <Foreign text={source.of} /></span>, <Foreign key="z" text={memoryText(sizeOf(volume))} />,
      <Age key="a" of={volume.metadata.creationTimestamp} />, <Delete key="d" volume={volume} />,
    ],
  };
}

function sourceRow(source: DataSource): PlainRow {
  const to = refersTo(source);
  const ready = condition(source, 'Ready');
  return {
    key: `${source.metadata.namespace ?? ''}/${source.metadata.name}`,
    cells: [
      <Name key="n" of={source} />, <span key="t">{to.kind && v.source(to.kind)} <Foreign text={to.of} /></span>,
      <ToneLabel key="r" tone={ready?.status === 'True' ? 'good' : 'idle'} text={ready?.status === 'True' ? v.ready : v.notReady} />,
      <Foreign key="w" text={ready?.status === 'True' ? '' : ready?.message} most={1000} />,
    ],
  };
}

function claimRow(claim: Claim): PlainRow {
  const phase = claim.status?.phase ?? '';
  return {
    key: `${claim.metadata.namespace ?? ''}/${claim.metadata.name}`,
    cells: [
      <Name key="n" of={claim} />, <ToneLabel key="s" tone={phase === 'Bound' ? 'good' : phase === 'Lost' ? 'bad' : 'idle'} text={v.claimPhase(phase)} />,
      <Foreign key="z" text={memoryText(claim.status?.capacity?.storage ?? claim.spec?.resources?.requests?.storage)} />,
      <Foreign key="c" text={claim.spec?.storageClassName} />, v.mode(claim.spec?.volumeMode ?? 'Filesystem'), <Owner key="o" of={claim} />,
    ],
  };
}

interface PartProps<T extends KubeObject> {
  title: string;
  empty: string;
  list: Followed<T>;
  heads: string[];
  narrow: string[];
  items: readonly T[];
  row: (of: T) => PlainRow;
}

function Part<T extends KubeObject>({ title, empty, list, heads, narrow, items, row }: PartProps<T>): ReactElement {
  return (
    <section className="dd-stack dd-section">
      <Content component="h2">{title}</Content>
      <ListAlert list={list} of={title} />
      {list.complete && <PlainTable label={title} heads={heads} narrow={narrow} empty={list.byKey.size === 0 ? empty : v.noMatch} rows={items.slice(0, most).map(row)} />}
      {items.length > most && <p>{v.more(items.length - most)}</p>}
      {!list.complete && !list.failure && <Loading />}
    </section>
  );
}

export function VolumesPage({ route, namespace }: { route: VolumesRoute; namespace: string }): ReactElement {
  const volumes = useList<DataVolume>(kinds.dataVolume, route.namespace);
  const sources = useList<DataSource>(kinds.dataSource, route.namespace);
  const claims = useList<Claim>(kinds.claim, route.namespace);
  const words = useDeferredValue(route.words);
  const target = route.namespace === '' ? namespace : route.namespace;
  const may = useRights(target);
  const [importing, setImporting] = useState(false);
  return (
    <PageSection hasBodyWrapper={false}>
      <PageTitle title={v.title}>
        <Live list={volumes} />
        <Act
          variant="primary" reason={denied(may, { verb: 'create', group: kinds.dataVolume.group, resource: kinds.dataVolume.resource })}
          onClick={() => {
            setImporting(true);
          }}
        >{t.imports.title}</Act>
      </PageTitle>
      <Toolbar inset={{ default: 'insetNone' }}>
        <ToolbarContent>
          <ToolbarGroup variant="filter-group" className="dd-filters">
            <ToolbarItem>
              <NamespaceChoice id="namespace" all value={route.namespace} onChange={(chosen) => {
                goTo({ ...route, namespace: chosen });
              }} />
            </ToolbarItem>
            <ToolbarItem>
              <SearchInput
                aria-label={v.find} placeholder={t.machines.findShort} value={route.words}
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
        <Part
          title={v.volumes} empty={v.noVolumes} list={volumes} heads={[v.name, v.state, v.says, v.from, v.size, v.made, v.actions]}
          narrow={[v.size, v.made, v.actions]} items={found(volumes.byKey.values(), words, (x) => [x.status?.phase ?? '', sourceOf(x).of])} row={volumeRow}
        />
        <Part
          title={v.sources} empty={v.noSources} list={sources} heads={[v.name, v.refersTo, v.state, v.says]} narrow={[]}
          items={found(sources.byKey.values(), words, (x) => [refersTo(x).of])} row={sourceRow}
        />
        <Part
          title={v.claims} empty={v.noClaims} list={claims} heads={[v.name, v.state, v.size, v.class, v.modeHead, v.owner]} narrow={[v.state, v.size]}
          items={found(claims.byKey.values(), words, (x) => [x.status?.phase ?? '', x.spec?.storageClassName ?? ''])} row={claimRow}
        />
      </div>
      {importing && <ImportDialog namespace={target} close={() => {
        setImporting(false);
      }} />}
    </PageSection>
  );
}
