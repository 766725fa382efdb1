// Whether a list is live.
import type { ReactElement } from 'react';
import { Label } from '@patternfly/react-core';
import type { Items } from '../kube/items';
import type { KubeObject } from '../kube/types';
import { t } from '../text/en';

export function Live({ list }: { list: Items<KubeObject> }): ReactElement {
  const status = list.phase === 'watching' ? 'success' : list.phase === 'waiting' || list.phase === 'refused' ? 'warning' : undefined;
  const text = t.live[list.phase];
  return (
    <span role="status">
      {status ? <Label isCompact variant="outline" status={status}>{text}</Label> : <Label isCompact variant="outline">{text}</Label>}
    </span>
  );
}
