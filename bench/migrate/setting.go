package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/baseline"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	virtctl "drydock.dev/drydock/internal/virtctl/client"
)

const (
	guestName = "guest"
	disk      = "root"
	// classShared is the StorageClass of volumes on all nodes.
	classShared = "shared"
	diskSize    = "64Mi"
)

// setting is shared by all rounds: a claim on all nodes, a VMI with it, and the baseline, a QEMU with
// the VMI's arguments and its own disk.
type setting struct {
	cluster   *cluster.Cluster
	report    *report.Report
	namespace string
	logs      string

	machine  *baseline.Machine
	baseline *end
	// listed means that one migration's requests have been printed.
	listed bool
}

// On failure its parts are removed.
func prepare(ctx context.Context, c *cluster.Cluster, ns string, r *report.Report) (*setting, error) {
	s := &setting{cluster: c, namespace: ns, report: r}
	for _, step := range []func(context.Context) error{s.findLogs, s.startGuest, s.startBaseline} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, s.end())
		}
	}
	return s, nil
}

func (s *setting) findLogs(ctx context.Context) (err error) {
	s.logs, err = s.cluster.AuditLogs(ctx)
	return err
}

func newDisk(namespace, name string) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{layout.AnnImmediate: ""}},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
				URL: new("docker://" + cluster.GuestImage), PullMethod: new(cdiv1.RegistryPullNode),
			}},
			Storage: &cdiv1.StorageSpec{
				StorageClassName: new(classShared), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(diskSize)}},
			},
		},
	}
}

func newVMI(namespace, name, claim string) *v1.VirtualMachineInstance {
	vmi := cluster.VMI(namespace, name)
	vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: claim}}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	return vmi
}

func boot(ctx context.Context, c *cluster.Cluster, namespace, name, claim string) error {
	_, _, err := c.CreateAndAwait(ctx, newDisk(namespace, claim), &cdiv1.DataVolumeList{}, func(o client.Object) bool {
		dv, ok := o.(*cdiv1.DataVolume)
		return ok && dv.Status.Phase == cdiv1.Succeeded
	})
	if err != nil {
		return fmt.Errorf("importing the disk of %s: %w", name, err)
	}
	if _, _, err := c.CreateAndAwait(ctx, newVMI(namespace, name, claim), &v1.VirtualMachineInstanceList{}, cluster.Running); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	conn, err := c.Console(ctx, namespace, name)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = cluster.Login(ctx, conn)
	return err
}

// The guest is paused while its disk is copied, which must not change.
func (s *setting) startGuest(ctx context.Context) error {
	if err := boot(ctx, s.cluster, s.namespace, guestName, disk); err != nil {
		return err
	}
	pods, err := s.launchers(ctx)
	if err != nil {
		return err
	}
	if len(pods) != 1 {
		return fmt.Errorf("looking for the launcher pod of the guest: there are %d", len(pods))
	}
	asker, err := virtctl.New(s.cluster.Config)
	if err != nil {
		return fmt.Errorf("making a client of virt-api: %w", err)
	}
	ref := virtctl.Ref{Resource: virtctl.VirtualMachineInstances, Namespace: s.namespace, Name: guestName}
	if err := asker.Put(ctx, ref, "pause", &v1.PauseOptions{}); err != nil {
		return fmt.Errorf("pausing the guest: %w", err)
	}
	if s.machine, err = baseline.Learn(ctx, &pods[0]); err != nil {
		return err
	}
	if err := asker.Put(ctx, ref, "unpause", &v1.UnpauseOptions{}); err != nil {
		return fmt.Errorf("unpausing the guest: %w", err)
	}
	return awaitMigratable(ctx, s.cluster, s.namespace, guestName)
}

func awaitMigratable(ctx context.Context, c *cluster.Cluster, namespace, name string) error {
	return cluster.Eventually(ctx, name+" to be able to migrate", func(ctx context.Context) (bool, error) {
		var vmi v1.VirtualMachineInstance
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &vmi); err != nil {
			return false, err
		}
		is := func(t v1.VirtualMachineInstanceConditionType) bool {
			return slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
				return c.Type == t && c.Status == corev1.ConditionTrue
			})
		}
		return is(v1.VirtualMachineInstanceIsMigratable) && is(v1.VirtualMachineInstanceReady) && !is(v1.VirtualMachineInstancePaused), nil
	})
}

func (s *setting) startBaseline(ctx context.Context) error {
	qemu, err := s.machine.Start(ctx)
	if err != nil {
		return err
	}
	if s.baseline, err = attach(ctx, qemu); err != nil {
		return err
	}
	conn, err := qemu.Console(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = cluster.Login(ctx, conn)
	return err
}

// The namespace has the rest.
func (s *setting) end() error {
	if s.baseline != nil {
		s.baseline.stop()
	}
	if s.machine != nil {
		return s.machine.Forget()
	}
	return nil
}

// The pod has the grace period of attachment pods: without one the object would vanish at once, and the kubelet
// would tear the pod down during the next measurement.
func (s *setting) barePod(name string) *corev1.Pod {
	pod := cluster.BarePod(s.namespace, name)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(hotplugpod.GracePeriodSeconds))
	pod.Spec.Volumes = []corev1.Volume{{Name: disk, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: disk},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: disk, MountPath: "/" + disk}}
	return pod
}
