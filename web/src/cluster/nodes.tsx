// The cluster's nodes, as far as guests are concerned.
import { useMemo, type ReactElement } from 'react';
import { Label, PageSection } from '@patternfly/react-core';
import { useList } from '../kube/lists';
import { kinds } from '../kube/paths';
import { memoryText } from '../kube/quantity';
import type { Node, VMI } from '../kube/types';
import { isFinal, isTrue } from '../machine/state';
import { Foreign, ListAlert, Loading } from '../parts/basics';
import { Live } from '../parts/live';
import { PlainTable } from '../parts/tables';
import { PageTitle } from '../shell/frame';
import { formatRoute } from '../shell/route';
import { t } from '../text/en';

const n = t.nodes;

export function guestsOn(vmis: Iterable<VMI>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const vmi of vmis) {
    const node = vmi.status?.nodeName;
    if (node && !isFinal(vmi)) counts.set(node, (counts.get(node) ?? 0) + 1);
  }
  return counts;
}

const usable = 'usable';

export function acceleration(node: Node): 'kvm' | 'tcg' | undefined {
  const labels = node.metadata.labels ?? {};
  if (labels['drydock.dev/kvm'] === usable) return 'kvm';
  return labels['drydock.dev/tcg'] === usable ? 'tcg' : undefined;
}

function State({ node }: { node: Node }): ReactElement {
  const ready = isTrue(node, 'Ready');
  return (
    <span className="dd-tools">
      <Label isCompact status={ready ? 'success' : 'danger'}>{ready ? n.ready : n.notReady}</Label>
      {node.spec?.unschedulable && <Label isCompact status="warning">{n.cordoned}</Label>}
    </span>
  );
}

function Guests({ node }: { node: Node }): ReactElement {
  const how = acceleration(node);
  if (node.metadata.labels?.['kubevirt.io/schedulable'] !== 'true') return <>{n.schedulable}</>;
  return <>{how === undefined ? t.unknown : n[how]}</>;
}

export function NodesPage(): ReactElement {
  const nodes = useList<Node>(kinds.node);
  const vmis = useList<VMI>(kinds.vmi);
  const guests = useMemo(() => guestsOn(vmis.byKey.values()), [vmis.byKey]);
  const all = [...nodes.byKey.values()].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
  return (
    <PageSection hasBodyWrapper={false}>
      <PageTitle title={n.title}><Live list={nodes} /></PageTitle>
      <ListAlert list={nodes} of={n.title} />
      {nodes.complete ? (
        <PlainTable
          label={n.title} narrow={[n.state, n.machines, n.cpu, n.memory, n.version]} heads={[n.name, n.state, n.machines, n.accelerator, n.cpu, n.memory, n.version, n.system]} empty={n.empty}
          rows={all.map((node) => ({
            key: node.metadata.name,
            cells: [
              <Foreign key="n" text={node.metadata.name} />, <State key="s" node={node} />,
              <a key="m" href={formatRoute({ page: 'machines', namespace: '', words: node.metadata.name, status: '' })}>
                {t.count.machines(guests.get(node.metadata.name) ?? 0)}
              </a>,
              <Guests key="g" node={node} />, <Foreign key="c" text={node.status?.allocatable?.cpu} />,
              <Foreign key="y" text={memoryText(node.status?.allocatable?.memory)} />,
              <Foreign key="v" text={node.status?.nodeInfo?.kubeletVersion} />, <Foreign key="o" text={node.status?.nodeInfo?.osImage} />,
            ],
          }))}
        />
      ) : !nodes.failure && <Loading />}
    </PageSection>
  );
}
