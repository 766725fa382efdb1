package hotplug

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/baseline"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	virtctl "drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/test/console"
)

const (
	guestName = "guest"
	// claimSize is large enough that a file system's own share is a small part.
	claimSize = 1 << 30
	diskSize  = 64 << 20
)

// setting is shared by all rounds: a claim, a VMI, and the baseline, a QEMU with the VMI's
// arguments.
type setting struct {
	cluster   *cluster.Cluster
	client    *virtctl.Client
	namespace string
	node      string

	guest, baseline shell
	machine         *baseline.Machine
	qemu            *baseline.Guest
	monitor         *qmp.Client
}

type shell struct {
	conn    net.Conn
	console *console.Console
}

// On failure its parts are removed.
func prepare(ctx context.Context, c *cluster.Cluster, ns string) (*setting, error) {
	s := &setting{cluster: c, namespace: ns}
	for _, step := range []func(context.Context) error{s.makeClaim, s.startGuest, s.startBaseline} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, s.end())
		}
	}
	return s, nil
}

func (s *setting) makeClaim(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := s.cluster.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	s.node = nodes.Items[0].Name
	err := s.cluster.Client.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: volume},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(claimSize, resource.BinarySI),
			}},
		},
	})
	if err != nil {
		return fmt.Errorf("creating a claim: %w", err)
	}
	// The first consumer binds the claim and is not measured.
	if _, err := s.cluster.TimePod(ctx, s.barePod("first")); err != nil {
		return fmt.Errorf("binding the claim: %w", err)
	}
	return nil
}

// The pod has the grace period of attachment pods: without one the object would vanish at once, and the kubelet
// would tear the pod down during the next measurement.
func (s *setting) barePod(name string) *corev1.Pod {
	pod := cluster.BarePod(s.namespace, name)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.node}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(hotplugpod.GracePeriodSeconds))
	pod.Spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: volume, MountPath: "/" + volume}}
	return pod
}

func (s *setting) startGuest(ctx context.Context) error {
	vmi := cluster.VMI(s.namespace, guestName)
	vmi.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.node}
	if _, _, err := s.cluster.CreateAndAwait(ctx, vmi, &v1.VirtualMachineInstanceList{}, cluster.Running); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := s.cluster.Client.List(ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{v1.AppLabel: layout.LauncherApp}); err != nil {
		return fmt.Errorf("listing launcher pods: %w", err)
	}
	if len(pods.Items) != 1 {
		return fmt.Errorf("looking for the launcher pod of the guest: there are %d", len(pods.Items))
	}
	var err error
	if s.machine, err = baseline.Learn(ctx, &pods.Items[0]); err != nil {
		return err
	}
	if s.client, err = virtctl.New(s.cluster.Config); err != nil {
		return fmt.Errorf("making a client of virt-api: %w", err)
	}
	if s.guest.conn, err = s.cluster.Console(ctx, s.namespace, guestName); err != nil {
		return err
	}
	return s.guest.login(ctx)
}

func (s *setting) startBaseline(ctx context.Context) error {
	if err := os.WriteFile(s.machine.Path(volume), nil, 0o600); err != nil {
		return fmt.Errorf("making the baseline's disk: %w", err)
	}
	if err := os.Truncate(s.machine.Path(volume), diskSize); err != nil {
		return fmt.Errorf("making the baseline's disk: %w", err)
	}
	var err error
	if s.qemu, err = s.machine.Start(ctx); err != nil {
		return err
	}
	if s.baseline.conn, err = s.qemu.Console(ctx); err != nil {
		return err
	}
	if err := s.baseline.login(ctx); err != nil {
		return err
	}
	s.monitor, err = s.qemu.Monitor(ctx, nil)
	return err
}

// The namespace has the rest.
func (s *setting) end() error {
	for _, sh := range []shell{s.guest, s.baseline} {
		if sh.conn != nil {
			_ = sh.conn.Close() // all output has been read
		}
	}
	if s.monitor != nil {
		_ = s.monitor.Close()
	}
	if s.qemu != nil {
		s.qemu.Stop()
	}
	if s.machine != nil {
		return s.machine.Forget()
	}
	return nil
}

func (s *shell) login(ctx context.Context) (err error) {
	s.console, err = cluster.Login(ctx, s.conn)
	return err
}

// watched is the guest's only SCSI disk.
const watched = "/sys/block/sda"

var (
	waits = regexp.MustCompile(`it-waits\n`)
	seen  = regexp.MustCompile(`it-is-so\n`)
)

// watch makes the shell poll until the disk is there, or is not. It returns once the shell polls.
func (s *shell) watch(ctx context.Context, there bool) error {
	test := "[ -e " + watched + " ]"
	if !there {
		test = "! " + test
	}
	// The quotes keep an echo of the command from matching.
	if err := s.console.Send("echo it-'waits'; until " + test + "; do sleep 0.02; done; echo it-is-'so'\n"); err != nil {
		return err
	}
	_, err := s.console.Expect(ctx, waits)
	return err
}

func (s *shell) saw(ctx context.Context) error {
	_, err := s.console.Expect(ctx, seen)
	return err
}

func (s *shell) lost(ctx context.Context) error {
	if err := s.watch(ctx, false); err != nil {
		return err
	}
	return s.saw(ctx)
}

func (s *setting) addDevice(ctx context.Context) error {
	err := s.monitor.Execute(ctx, "blockdev-add", map[string]any{
		"node-name": volume, "driver": "raw",
		"file": map[string]any{"driver": "file", "filename": s.machine.Path(volume)},
	}, nil)
	if err != nil {
		return err
	}
	return s.monitor.Execute(ctx, "device_add", map[string]any{
		"id": volume, "driver": "scsi-hd", "bus": "scsi0.0", "drive": volume, "serial": volume,
	}, nil)
}

func (s *setting) removeDevice(ctx context.Context) error {
	if err := s.monitor.Execute(ctx, "device_del", map[string]any{"id": volume}, nil); err != nil {
		return err
	}
	if err := s.baseline.lost(ctx); err != nil {
		return err
	}
	return cluster.Eventually(ctx, "QEMU to let go of the disk", func(ctx context.Context) (bool, error) {
		err := s.monitor.Execute(ctx, "blockdev-del", map[string]any{"node-name": volume}, nil)
		return err == nil, err
	})
}
