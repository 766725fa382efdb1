// Disks and interfaces of a machine as rows of a table.
import type { InterfaceStatus, MachineSpec, Volume, VolumeStatus } from '../kube/types';
import { bindingOf } from './state';

export interface DiskRow {
  name: string;
  bus: string;
  source: string;
  // '' if the volume is on no claim
  claim: string;
  pluggable: boolean;
  inTemplate: boolean;
  status: VolumeStatus | undefined;
}

export function sourceText(volume: Volume | undefined): string {
  if (!volume) return '';
  if (volume.containerDisk) return volume.containerDisk.image ?? 'containerDisk';
  if (volume.dataVolume) return `DataVolume ${volume.dataVolume.name ?? ''}`;
  if (volume.persistentVolumeClaim) return `PersistentVolumeClaim ${volume.persistentVolumeClaim.claimName ?? ''}`;
  return Object.keys(volume).find((k) => k !== 'name') ?? '';
}

export function diskRows(spec: MachineSpec, template: MachineSpec | undefined, statuses: readonly VolumeStatus[]): DiskRow[] {
  return (spec.domain?.devices?.disks ?? []).map((disk) => {
    const volume = spec.volumes?.find((v) => v.name === disk.name);
    const claim = volume?.persistentVolumeClaim?.claimName ?? volume?.dataVolume?.name ?? '';
    return {
      name: disk.name,
      bus: (disk.disk ?? disk.cdrom ?? disk.lun)?.bus ?? '',
      source: sourceText(volume),
      claim,
      pluggable: volume?.persistentVolumeClaim?.hotpluggable ?? volume?.dataVolume?.hotpluggable ?? false,
      inTemplate: template?.volumes?.some((v) => v.name === disk.name) ?? false,
      status: statuses.find((s) => s.name === disk.name),
    };
  });
}

export interface NICRow {
  name: string;
  network: string;
  binding: string;
  mac: string;
  addresses: string;
  link: string;
}

export function nicRows(spec: MachineSpec, statuses: readonly InterfaceStatus[], podNetwork: string): NICRow[] {
  return (spec.domain?.devices?.interfaces ?? []).map((i) => {
    const network = spec.networks?.find((n) => n.name === i.name);
    const status = statuses.find((s) => s.name === i.name);
    return {
      name: i.name,
      network: network?.multus?.networkName ?? (network?.pod ? podNetwork : ''),
      binding: bindingOf(i),
      mac: status?.mac ?? i.macAddress ?? '',
      addresses: (status?.ipAddresses ?? (status?.ipAddress ? [status.ipAddress] : [])).join(', '),
      link: status?.linkState ?? i.state ?? '',
    };
  });
}
