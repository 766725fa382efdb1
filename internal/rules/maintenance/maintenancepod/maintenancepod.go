// Package maintenancepod renders the pod that gives a user access to the disks of a stopped VM, and lists the
// disks that a VM offers.
//
// It must not import a client, read a clock or authorize a request. virt-controller removes the pod's scheduling gate.
package maintenancepod

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/selinux"
)

const (
	// graceSeconds is the time for a terminated command to finish its writes.
	graceSeconds = 30
	// A lost connection leaves the terminal open, and the waiting shell would keep the VM locked.
	idleSeconds = "3600"
	idleEnv     = "TMOUT"
	// QEMU's needs for libguestfs's appliance, beside the tools.
	cpuRequest, memoryRequest = "100m", "512Mi"
)

// Input is the input of Render.
type Input struct {
	VM       *v1.VirtualMachine // with its type and preference expanded
	Request  *maintenance.Request
	Settings clusterconfig.Settings
	Image    string                                   // if the request has none
	Token    string                                   // in the pod's name
	Claims   map[string]*corev1.PersistentVolumeClaim // the existing ones of the function Claims, by name
}

// Render returns the pod. Its errors are for the user, who must change the VM or the request.
func Render(in Input) (*corev1.Pod, error) {
	if in.VM.Spec.Template == nil {
		return nil, errors.New("the VM has no template, and so no disks")
	}
	disks, err := disksOf(in.VM, in.Request)
	if err != nil {
		return nil, err
	}
	if err := checkClaims(in.VM, disks, in.Claims); err != nil {
		return nil, err
	}
	resources, err := resources(in, disks)
	if err != nil {
		return nil, err
	}
	vmi := stateclaim.Next(in.VM)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: layout.ReplicaName("maintenance-"+in.VM.Name, in.Token), Namespace: in.VM.Namespace,
			Labels: map[string]string{layout.MaintenanceForLabel: layout.LabelValue(in.VM.Name)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(graceSeconds)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			ImagePullSecrets:              pullSecrets(&vmi.Spec),
			SecurityContext:               podSecurity(in),
			Containers:                    []corev1.Container{container(in, resources)},
		},
	}
	if d := in.Request.DeadlineSeconds; d > 0 {
		pod.Spec.ActiveDeadlineSeconds = &d
	}
	launcherpod.Constrain(&pod.Spec, vmi, in.Settings)
	c := &pod.Spec.Containers[0]
	for _, d := range disks {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: d.volume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: d.claim, ReadOnly: d.readOnly},
		}})
		if mode := in.Claims[d.claim].Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
			c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: d.volume, DevicePath: d.path})
		} else {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: d.volume, MountPath: d.path, ReadOnly: d.readOnly})
		}
	}
	return pod, nil
}

func container(in Input, resources corev1.ResourceRequirements) corev1.Container {
	r := in.Request
	c := corev1.Container{
		Name: layout.MaintenanceContainer, Image: in.Image, ImagePullPolicy: in.Settings.ImagePullPolicy,
		Command: slices.Clone(r.Command), Args: slices.Clone(r.Args), Resources: resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if r.Image != "" {
		c.Image = r.Image
	}
	if r.ImagePullPolicy != "" {
		c.ImagePullPolicy = corev1.PullPolicy(r.ImagePullPolicy)
	}
	if r.Interactive {
		c.Stdin, c.StdinOnce, c.TTY = true, true, true
		c.Env = []corev1.EnvVar{{Name: idleEnv, Value: idleSeconds}}
	}
	return c
}

// QEMU's user owns a disk, and on a node with labeled file systems only the same SELinux type can access it.
func podSecurity(in Input) *corev1.PodSecurityContext {
	user, group := int64(layout.QEMUUser), int64(layout.QEMUUser)
	if in.Request.UID != nil {
		user = *in.Request.UID
	}
	if in.Request.FSGroup != nil {
		group = *in.Request.FSGroup
	}
	return &corev1.PodSecurityContext{
		RunAsUser: &user, RunAsGroup: new(int64(layout.QEMUUser)), RunAsNonRoot: new(user != 0), FSGroup: &group,
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		SELinuxOptions:      selinux.LauncherOptions(in.Settings.SELinuxLauncherType),
	}
}

// A pod that binds a claim also requests the VM's resources, since the claim's node becomes the VM's.
func resources(in Input, disks []disk) (corev1.ResourceRequirements, error) {
	out := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpuRequest), corev1.ResourceMemory: resource.MustParse(memoryRequest),
		},
		Limits: corev1.ResourceList{},
	}
	if err := quantities(out.Requests, in.Request.Resources.Requests, "requests"); err != nil {
		return out, err
	}
	if err := quantities(out.Limits, in.Request.Resources.Limits, "limits"); err != nil {
		return out, err
	}
	if slices.ContainsFunc(disks, func(d disk) bool { return in.Claims[d.claim].Spec.VolumeName == "" }) {
		guest, err := launcherpod.Requests(stateclaim.Next(in.VM), in.Settings)
		if err != nil {
			return out, fmt.Errorf("reckoning what the VM needs of a node: %w", err)
		}
		for name, q := range guest {
			if own, has := out.Requests[name]; !has || own.Cmp(q) < 0 {
				out.Requests[name] = q
			}
		}
	}
	if in.Request.KVM && !in.Settings.UseEmulation {
		out.Limits[layout.ResourceKVM] = resource.MustParse("1")
	}
	launcherpod.LimitCountable(out)
	for name, limit := range out.Limits {
		// The API server refuses a request above the limit, so a default request yields to it.
		_, asked := in.Request.Resources.Requests[string(name)]
		if own, has := out.Requests[name]; has && !asked && limit.Cmp(own) < 0 {
			out.Requests[name] = limit
		}
	}
	return out, nil
}

func quantities(into corev1.ResourceList, texts map[string]string, what string) error {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		q, err := resource.ParseQuantity(texts[name])
		if err != nil {
			return fmt.Errorf("resources.%s.%s: %q is no quantity: %w", what, name, texts[name], err)
		}
		into[corev1.ResourceName(name)] = q
	}
	return nil
}

// pullSecrets returns the secrets of the VM's images: a mirror of the installation's image is often in their registry.
func pullSecrets(spec *v1.VirtualMachineInstanceSpec) []corev1.LocalObjectReference {
	var names []string
	if f := spec.Domain.Firmware; f != nil && f.KernelBoot != nil && f.KernelBoot.Container != nil {
		names = append(names, f.KernelBoot.Container.ImagePullSecret)
	}
	for i := range spec.Volumes {
		if c := spec.Volumes[i].ContainerDisk; c != nil {
			names = append(names, c.ImagePullSecret)
		}
	}
	var out []corev1.LocalObjectReference
	for _, name := range names {
		reference := corev1.LocalObjectReference{Name: name}
		if name != "" && !slices.Contains(out, reference) {
			out = append(out, reference)
		}
	}
	return out
}
