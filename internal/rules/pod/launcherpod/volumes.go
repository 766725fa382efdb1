package launcherpod

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
)

type storage struct {
	volumes        []corev1.Volume
	mounts         []corev1.VolumeMount
	devices        []corev1.VolumeDevice
	pullSecrets    []corev1.LocalObjectReference
	serviceAccount string
}

func podStorage(vmi *v1.VirtualMachineInstance, facts Facts) (*storage, error) {
	s := &storage{}
	s.mount(emptyDir(layout.PrivateVolume, ""), corev1.VolumeMount{MountPath: layout.PrivateDir})
	s.mount(emptyDir(layout.EphemeralVolume, ""), corev1.VolumeMount{MountPath: layout.EphemeralDir})
	if h := hugepages(vmi); h != nil {
		size, err := pageSize(h)
		if err != nil {
			return nil, err
		}
		s.mount(emptyDir(layout.HugepagesVolume, corev1.StorageMediumHugePagesPrefix+corev1.StorageMedium(size)),
			corev1.VolumeMount{MountPath: layout.HugepagesDir})
	}
	if f := vmi.Spec.Domain.Firmware; f != nil && f.KernelBoot != nil && f.KernelBoot.Container != nil {
		c := f.KernelBoot.Container
		s.image(layout.KernelBootVolume, layout.KernelBootDir, c.Image, c.ImagePullPolicy, c.ImagePullSecret)
	}
	for i := range vmi.Spec.Volumes {
		if machine.Hotpluggable(&vmi.Spec.Volumes[i]) {
			continue // An attachment pod has it.
		}
		v := &vmi.Spec.Volumes[i]
		if claim := volumeclaim.Name(&v.VolumeSource); facts.BlockClaims[claim] && machine.IsShare(&vmi.Spec, v.Name) {
			return nil, fmt.Errorf("spec.volumes[%d]: PVC %s is a block device (volumeMode Block): a folder to share needs a claim with volumeMode Filesystem", i, claim)
		}
		if err := s.add(v, facts); err != nil {
			return nil, fmt.Errorf("spec.volumes[%d]: %w", i, err)
		}
	}
	for _, c := range accesscredential.Sources(&vmi.Spec) {
		s.mount(secret(layout.AccessCredentialVolume(c.Index), c.Secret, nil),
			corev1.VolumeMount{MountPath: layout.AccessCredentialDir(c.Index), ReadOnly: true})
	}
	if claim := stateclaim.ClaimName(vmi); claim != "" {
		s.mount(claimVolume(layout.StateVolume, claim), corev1.VolumeMount{MountPath: layout.StateDir})
	}
	return s, nil
}

func (s *storage) add(v *v1.Volume, facts Facts) error {
	name, dir := layout.PodVolume(v.Name), layout.VolumeDir(v.Name)
	readOnly := corev1.VolumeMount{MountPath: dir, ReadOnly: true}
	if claim, ok := volumeclaim.Of(&v.VolumeSource); ok {
		s.claim(v.Name, claim, facts)
		return nil
	}
	switch {
	case v.ContainerDisk != nil:
		d := v.ContainerDisk
		s.image(name, dir, d.Image, d.ImagePullPolicy, d.ImagePullSecret)
	case v.HostDisk != nil:
		s.hostDisk(name, dir, v.HostDisk)
	case v.EmptyDisk != nil, v.DownwardMetrics != nil:
		// virt-launcher creates it in the ephemeral volume.
	case v.CloudInitNoCloud != nil:
		s.cloudInit(v.Name, v.CloudInitNoCloud.UserDataSecretRef, v.CloudInitNoCloud.NetworkDataSecretRef)
	case v.CloudInitConfigDrive != nil:
		s.cloudInit(v.Name, v.CloudInitConfigDrive.UserDataSecretRef, v.CloudInitConfigDrive.NetworkDataSecretRef)
	case v.ConfigMap != nil:
		s.mount(corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Optional: v.ConfigMap.Optional,
		}}}, readOnly)
	case v.Secret != nil:
		s.mount(secret(name, v.Secret.SecretName, v.Secret.Optional), readOnly)
	case v.DownwardAPI != nil:
		s.mount(corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: v.DownwardAPI.DeepCopy().Fields,
		}}}, readOnly)
	case v.ServiceAccount != nil:
		s.serviceAccount = v.ServiceAccount.ServiceAccountName
		s.mount(serviceAccountToken(name), readOnly)
	case v.Sysprep != nil && v.Sysprep.ConfigMap != nil:
		s.mount(corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: *v.Sysprep.ConfigMap,
		}}}, readOnly)
	case v.Sysprep != nil && v.Sysprep.Secret != nil:
		s.mount(secret(name, v.Sysprep.Secret.Name, nil), readOnly)
	default:
		return fmt.Errorf("the source of volume %q is not supported by Drydock", v.Name)
	}
	return nil
}

func (s *storage) mount(v corev1.Volume, m corev1.VolumeMount) {
	m.Name = v.Name
	s.volumes = append(s.volumes, v)
	s.mounts = append(s.mounts, m)
}

func (s *storage) image(name, dir, reference string, policy corev1.PullPolicy, pullSecret string) {
	s.mount(corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{
		Reference: reference, PullPolicy: policy,
	}}}, corev1.VolumeMount{MountPath: dir, ReadOnly: true})
	if pullSecret == "" {
		return
	}
	for _, r := range s.pullSecrets {
		if r.Name == pullSecret {
			return
		}
	}
	s.pullSecrets = append(s.pullSecrets, corev1.LocalObjectReference{Name: pullSecret})
}

// claim mounts a PersistentVolumeClaim, as a device or as a folder.
func (s *storage) claim(volume string, claim volumeclaim.Claim, facts Facts) {
	v := corev1.Volume{Name: layout.PodVolume(volume), VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name, ReadOnly: claim.ReadOnly},
	}}
	if !facts.BlockClaims[claim.Name] {
		s.mount(v, corev1.VolumeMount{MountPath: layout.VolumeDir(volume), ReadOnly: claim.ReadOnly})
		return
	}
	s.volumes = append(s.volumes, v)
	s.devices = append(s.devices, corev1.VolumeDevice{Name: v.Name, DevicePath: layout.VolumeDevice(volume)})
}

// The folder is created only if the disk may be.
func (s *storage) hostDisk(name, dir string, d *v1.HostDisk) {
	kind := corev1.HostPathDirectory
	if d.Type == v1.HostDiskExistsOrCreate {
		kind = corev1.HostPathDirectoryOrCreate
	}
	s.mount(corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path.Dir(d.Path), Type: &kind},
	}}, corev1.VolumeMount{MountPath: dir})
}

func (s *storage) cloudInit(volume string, userData, networkData *corev1.LocalObjectReference) {
	if userData != nil {
		s.mount(secret(layout.UserDataVolume(volume), userData.Name, nil),
			corev1.VolumeMount{MountPath: layout.UserDataDir(volume), ReadOnly: true})
	}
	if networkData != nil {
		s.mount(secret(layout.NetworkDataVolume(volume), networkData.Name, nil),
			corev1.VolumeMount{MountPath: layout.NetworkDataDir(volume), ReadOnly: true})
	}
}

func claimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

func emptyDir(name string, medium corev1.StorageMedium) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}
}

func secret(name, secretName string, optional *bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secretName, Optional: optional},
	}}
}

// serviceAccountToken is the guest's usual /var/run/secrets/kubernetes.io/serviceaccount. The launcher must not have a
// token.
func serviceAccountToken(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		},
	}}}
}

func hugepages(vmi *v1.VirtualMachineInstance) *v1.Hugepages {
	m := vmi.Spec.Domain.Memory
	if m == nil {
		return nil
	}
	return m.Hugepages
}

// StartClaims returns the claims with which the guest starts, and that of its VM's state.
func StartClaims(vmi *v1.VirtualMachineInstance) []string {
	fixed := slices.DeleteFunc(slices.Clone(vmi.Spec.Volumes), func(v v1.Volume) bool { return machine.Hotpluggable(&v) })
	return withState(volumeclaim.Names(fixed), vmi)
}

func withState(claims []string, vmi *v1.VirtualMachineInstance) []string {
	if claim := stateclaim.ClaimName(vmi); claim != "" && !slices.Contains(claims, claim) {
		claims = append(claims, claim)
	}
	return claims
}
