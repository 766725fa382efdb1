package maintenance

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// The paths of a claim's disk and the name of its pod that users of virtctl guestfs know.
const (
	claimDir       = "/disk"
	claimDevice    = "/dev/vda"
	claimPodPrefix = "libguestfs-tools-"
)

func newGuestfs(e *env.Env) *cobra.Command {
	s := &session{}
	var root bool
	var uid, fsGroup int64
	var command string
	cmd := &cobra.Command{
		Use:   "guestfs [PVC] [--vm VM]",
		Short: "Work on the disks of a machine that does not run, with libguestfs",
		Long: "Work on the disks of a machine that does not run, or on a claim, with libguestfs in a shell. A machine's disks are\n" +
			"below /disks, and it does not start until the shell ends. Of a claim that is a disk of a machine, the same holds.",
		Example: e.Example("# A shell with the disks of 'vm-cirros':", "guestfs --vm vm-cirros",
			"# What is on a disk of it?", `guestfs --vm vm-cirros --read-only --command "virt-filesystems -l -a /disks/root/disk.img"`,
			"# A shell with a claim:", "guestfs pvc-test"),
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("uid") {
				s.request.UID = &uid
			}
			if root {
				if s.request.UID != nil && uid != 0 {
					return fmt.Errorf("--root and --uid=%d contradict each other", uid)
				}
				s.request.UID = new(int64(0))
			}
			if cmd.Flags().Changed("fsGroup") {
				s.request.FSGroup = &fsGroup
			}
			s.request.Interactive = command == ""
			if command != "" {
				s.request.Command = []string{"/bin/sh", "-c", command}
			}
			switch {
			case s.vm != "" && len(args) > 0:
				return errors.New("name either a machine with --vm, or a claim")
			case s.vm != "":
				return s.run(cmd.Context(), e)
			case len(args) == 0:
				return fmt.Errorf("PVC or --vm is missing; usage: %s", cmd.UseLine())
			}
			return s.onClaim(cmd.Context(), e, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.vm, "vm", "", "the machine whose disks are wanted")
	f.StringVar(&command, "command", "", "run this in a shell, print what it says, and end with its exit code")
	f.BoolVar(&root, "root", false, "run as root, without its powers; the namespace must allow it")
	f.Int64Var(&uid, "uid", layout.QEMUUser, "run as this user")
	f.Int64Var(&fsGroup, "fsGroup", layout.QEMUUser, "the group that the disks are given to")
	s.addFlags(cmd)
	return cmd
}

// onClaim works on a claim: with the lock of the machine whose disk it is, or, if there is none, in a separate
// pod.
func (s *session) onClaim(ctx context.Context, e *env.Env, claim string) error {
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	vms, err := c.VMs(ctx, namespace)
	if err != nil {
		return fmt.Errorf("looking for the machine that PVC %s is a disk of: %w", claim, err)
	}
	for i := range vms {
		if disk := diskOn(&vms[i], claim); disk != "" {
			s.vm, s.request.Disks = vms[i].Name, []string{disk}
			fmt.Fprintf(e.Err, "PVC %s is the disk %s of VM %s, which does not start meanwhile: it is below /disks/%s\n", claim, disk, s.vm, disk)
			return s.run(ctx, e)
		}
	}
	if s.halt || len(s.request.Disks) > 0 || s.request.BackendStorage {
		return fmt.Errorf("PVC %s is no machine's disk: --halt, --disk and --backend-storage are about a machine", claim)
	}
	s.c, s.namespace = c, namespace
	pod, err := s.claimPod(ctx, claim)
	if err != nil {
		return err
	}
	made, err := c.Core().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a pod with PVC %s: %w", claim, err)
	}
	defer func() {
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer done()
		if err := remove(ctx, s.c, s.namespace, made.Name); err != nil {
			fmt.Fprintf(e.Err, "the pod %s is left: %v\n", made.Name, err)
		}
	}()
	if _, err := started(ctx, e, c, namespace, made.Name, false); err != nil {
		return err
	}
	if err := s.use(ctx, e, made.Name); err != nil {
		return err
	}
	return ended(ctx, e, c, namespace, made.Name)
}

// diskOn returns the volume of a VM that is on a claim, "" for none.
func diskOn(vm *v1.VirtualMachine, claim string) string {
	if vm.Spec.Template == nil {
		return ""
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		v := &vm.Spec.Template.Spec.Volumes[i]
		if p := v.PersistentVolumeClaim; p != nil && p.ClaimName == claim || v.DataVolume != nil && v.DataVolume.Name == claim {
			return v.Name
		}
	}
	return ""
}

// claimPod returns the pod for a claim, and an error if another pod uses it.
func (s *session) claimPod(ctx context.Context, name string) (*corev1.Pod, error) {
	claim, err := s.c.Core().PersistentVolumeClaims(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading PVC %s: %w", name, err)
	}
	pods, err := s.c.Core().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking for pods that use PVC %s: %w", name, err)
	}
	for i := range pods.Items {
		if client.UsesClaim(&pods.Items[i], name) {
			return nil, fmt.Errorf("PVC %s is used by another pod: %s", name, pods.Items[i].Name)
		}
	}
	return s.renderClaimPod(claim), nil
}

func (s *session) renderClaimPod(claim *corev1.PersistentVolumeClaim) *corev1.Pod {
	r := &s.request
	user, group := int64(layout.QEMUUser), int64(layout.QEMUUser)
	if r.UID != nil {
		user = *r.UID
	}
	if r.FSGroup != nil {
		group = *r.FSGroup
	}
	container := corev1.Container{
		Name: layout.MaintenanceContainer, Image: r.Image, ImagePullPolicy: corev1.PullPolicy(r.ImagePullPolicy),
		Command: r.Command, Stdin: r.Interactive, StdinOnce: r.Interactive, TTY: r.Interactive,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if r.Image == "" {
		container.Image = layout.DevelGuestfsImage
	}
	if r.KVM {
		container.Resources.Limits = corev1.ResourceList{layout.ResourceKVM: resource.MustParse("1")}
	}
	const volume = "disk"
	if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		container.VolumeDevices = []corev1.VolumeDevice{{Name: volume, DevicePath: claimDevice}}
	} else {
		container.VolumeMounts = []corev1.VolumeMount{{Name: volume, MountPath: claimDir, ReadOnly: r.ReadOnly}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: claimPodPrefix + claim.Name, Namespace: s.namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			ActiveDeadlineSeconds: new(int64(longest.Seconds())),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: &user, RunAsGroup: new(int64(layout.QEMUUser)), FSGroup: &group, RunAsNonRoot: new(user != 0),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Volumes: []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name, ReadOnly: r.ReadOnly},
			}}},
			Containers: []corev1.Container{container},
		},
	}
}
