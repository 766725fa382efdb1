//go:build e2e

// Package e2e proves the whole system on a real cluster with real guests: its tests assert the guest's view, not a
// status. It needs a running cluster with Drydock deployed; hack/test-cluster starts one and runs these tests in it.
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/test/namespace"
)

// cluster is shared by all tests.
var cluster struct {
	client client.WithWatch
	config *rest.Config
}

const (
	guestImage = "drydock.dev/test-guest:devel"
	// guestFullImage also has the drivers of real hardware (SATA, e1000, USB).
	guestFullImage   = "drydock.dev/test-guest-full:devel"
	guestKernelImage = "drydock.dev/test-guest-kernel:devel"
	toolsImage       = "drydock.dev/test-tools:devel"
)

func TestMain(m *testing.M) {
	if err := connect(); err != nil {
		fmt.Fprintf(os.Stderr, "connecting to the test cluster: %v\n", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return fmt.Errorf("KUBECONFIG is not set; run these tests by hack/test-cluster")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	config.QPS, config.Burst = -1, 0
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(cdiv1.AddToScheme(scheme))
	utilruntime.Must(migrationsv1.AddToScheme(scheme))
	utilruntime.Must(snapshotv1.AddToScheme(scheme))
	utilruntime.Must(clonev1.AddToScheme(scheme))
	utilruntime.Must(instancetypev1.AddToScheme(scheme))
	cluster.config = config
	cluster.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	return err
}

// What runs in the namespace, and what takes space, goes with the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespace.Prefix(t.Name())}}
	if err := cluster.client.Create(t.Context(), ns); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			report(t, ns.Name)
		}
		sweep(t, ns.Name)
	})
	return ns.Name
}

// swept has the names of the namespaces whose tests have ended.
var swept sync.Map

// sweep deletes the objects that run and those that take space. The namespace itself stays until the cluster is
// deleted: to delete one, kube-controller-manager deletes and lists the objects of every kind, again and again until
// the last guest has ended.
func sweep(t *testing.T, namespace string) {
	t.Helper()
	swept.Store(namespace, true)
	for _, kind := range []client.Object{
		&v1.VirtualMachine{}, &v1.VirtualMachineInstanceReplicaSet{}, &v1.VirtualMachineInstanceMigration{}, &v1.VirtualMachineInstance{},
		&batchv1.CronJob{}, &batchv1.Job{}, &corev1.Pod{},
		&clonev1.VirtualMachineClone{}, &snapshotv1.VirtualMachineRestore{}, &snapshotv1.VirtualMachineSnapshot{},
		&cdiv1.DataVolume{}, &corev1.PersistentVolumeClaim{},
	} {
		// A test that has passed must not fail because a busy API server did not answer once.
		eventually(t, fmt.Sprintf("each %T in namespace %s to be deleted", kind, namespace), func(ctx context.Context) error {
			return cluster.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
		})
	}
}

// warnsOfNothing fails the test at its end if its namespace has a warning event: the VMs are healthy, and a real
// warning must not be lost among others. but names the reasons that the test itself causes.
func warnsOfNothing(t *testing.T, namespace string, but ...string) {
	t.Helper()
	t.Cleanup(func() {
		var events corev1.EventList
		err := cluster.client.List(context.Background(), &events, client.InNamespace(namespace), client.MatchingFields{"type": corev1.EventTypeWarning})
		if err != nil {
			t.Errorf("listing the warnings of namespace %s: %v", namespace, err)
		}
		for _, e := range events.Items {
			if slices.Contains(but, e.Reason) || passesByItself(&e) {
				continue
			}
			t.Errorf("%s %s: %d× %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, max(e.Count, 1), e.Reason, e.Message)
		}
	})
}

// passesByItself reports whether a warning is about a state that a busy machine has for a moment.
func passesByItself(e *corev1.Event) bool {
	switch e.Reason {
	case "Unhealthy": // the guest has not booted yet, so the kubelet's probe fails
		return strings.HasPrefix(e.Message, "Readiness probe ")
	case "NodeNotReady": // the kubelet has renewed its node's lease too late
		return true
	case "FailedScheduling": // after the same
		return strings.Contains(e.Message, "untolerated taint")
	case "StartedWithoutVolumes": // a volume was attached later than a guest waits for it; the tests look at the disk itself
		return true
	case "FailedMount":
		// The kubelet gives its watch of a Secret or ConfigMap a second, and may see a pod before kube-apiserver's
		// authorizer does. It tries again.
		if strings.Contains(e.Message, "cache: timed out waiting for the condition") || strings.Contains(e.Message, "no relationship found between node") {
			return true
		}
	}
	// The pod goes when its claims are bound, which may be while the kubelet starts it.
	return e.Source.Component == "kubelet" && strings.HasPrefix(e.InvolvedObject.Name, launcherpod.ProvisioningPrefix)
}

// report logs the most useful facts about a failure last: of a long output only the end is kept.
func report(t *testing.T, namespace string) {
	for _, args := range [][]string{
		{"-n", "kubevirt", "get", "pods", "-o", "wide"},
		{"-n", namespace, "get", "vmi", "-o", "yaml"},
		{"-n", namespace, "get", "vm", "-o", "jsonpath={range .items[*]}{.metadata.name}: {.status}{'\\n'}{end}"},
		{"-n", namespace, "get", "events", "--sort-by=.lastTimestamp"},
		{"-n", namespace, "get", "vm,vmi,vmim,dv,pvc,pods", "-o", "wide"},
	} {
		out, err := kubectl(context.Background(), args...)
		t.Logf("kubectl %v (error: %v):\n%s", args, err, out)
	}
	for _, part := range []string{"virt-controller", "virt-handler"} {
		logs, err := kubectl(context.Background(), "-n", "kubevirt", "logs", "-l", "kubevirt.io="+part, "-c", part, "--prefix", "--tail=4000")
		lines := slices.DeleteFunc(strings.Split(logs, "\n"), func(line string) bool { return !strings.Contains(line, namespace) })
		t.Logf("what %s says of the namespace (error: %v):\n%s", part, err, strings.Join(lines[max(0, len(lines)-mostLines):], "\n"))
	}
}

// mostLines bounds a component's log of a namespace.
const mostLines = 200

func binary(name string) string { return filepath.Join("..", "..", "bin", name) }

func kubectl(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "drydock", append([]string{"kubectl"}, args...)...)
}

func virtctl(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "virtctl", args...)
}

// A failing program's standard error follows. Otherwise it is left out, because client-go logs its waits there.
func output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var beside strings.Builder
	command := exec.CommandContext(ctx, binary(program), args...)
	command.Stderr = &beside
	answer, err := command.Output()
	if err != nil {
		return string(answer) + beside.String(), err
	}
	return string(answer), nil
}

func kubeVirt() *v1.KubeVirt {
	return &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"}}
}

// configure patches the KubeVirt object, and applies back when the test ends. A test that calls it must not be
// parallel.
func configure(t *testing.T, patch, back string) {
	t.Helper()
	t.Cleanup(func() {
		if err := configureAndAwait(context.Background(), back); err != nil {
			t.Errorf("taking back what was configured: %v", err)
		}
	})
	configureFurther(t, patch)
}

// configureFurther patches the KubeVirt object and waits until virt-controller has seen it. Only the earlier call of
// configure reverts it.
func configureFurther(t *testing.T, patch string) {
	t.Helper()
	if err := configureAndAwait(t.Context(), patch); err != nil {
		t.Fatal(err)
	}
}

// configureAndAwait patches the KubeVirt object and waits until virt-controller has seen it.
func configureAndAwait(ctx context.Context, patch string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	configured := kubeVirt()
	if err := cluster.client.Patch(ctx, configured, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("configuring %s: %w", patch, err)
	}
	last, err := watchUntil(ctx, kubeVirt(), &v1.KubeVirtList{}, func(now *v1.KubeVirt) bool {
		return now.Status.ObservedGeneration != nil && *now.Status.ObservedGeneration >= configured.Generation
	})
	if err != nil {
		return fmt.Errorf("waiting until virt-controller has seen %s: %w; last seen: %+v", patch, err, last.Status)
	}
	return nil
}

type component struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

type clusterStatus struct {
	ControlPlane []component `json:"controlPlane"`
	Nodes        []struct {
		Name       string      `json:"name"`
		Ready      bool        `json:"ready"`
		Components []component `json:"components"`
	} `json:"nodes"`
}

func status(t *testing.T) clusterStatus {
	t.Helper()
	out, err := output(t.Context(), "drydock", "status", "-o", "json")
	if err != nil {
		t.Fatalf("drydock status: %v\n%s", err, out)
	}
	var s clusterStatus
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("reading drydock status: %v\n%s", err, out)
	}
	return s
}
