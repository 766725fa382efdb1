package clientgo

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	toolswatch "k8s.io/client-go/tools/watch"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
)

// patience bounds one wait. A wait that succeeds ends at once, so it is generous: guests are emulated and share few
// CPUs.
const patience = 5 * time.Minute

var virt kubecli.KubevirtClient

func TestMain(m *testing.M) {
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return fmt.Errorf("KUBECONFIG is not set: these tests need a cluster with Drydock; hack/test-cluster starts one")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig %s: %w", path, err)
	}
	// With the default of five requests a second, parallel tests would wait for each other.
	config.QPS, config.Burst = 50, 100
	if virt, err = kubecli.GetKubevirtClientFromRESTConfig(config); err != nil {
		return fmt.Errorf("making the client: %w", err)
	}
	return nil
}

// The test waits for the namespace's deletion, so that an object that can't be deleted is noticed.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespaces := virt.CoreV1().Namespaces()
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "clientgo-"}}
	namespace, err := namespaces.Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := namespaces.Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting the namespace %s: %v", namespace.Name, err)
			return
		}
		gone := func(event watch.Event) (bool, error) { return event.Type == watch.Deleted, nil }
		exists := func(store cache.Store) (bool, error) { return len(store.List()) == 0, nil }
		one := fields.OneTermEqualSelector("metadata.name", namespace.Name)
		lw := cache.NewListWatchFromClient(virt.CoreV1().RESTClient(), "namespaces", "", one)
		if _, err := toolswatch.UntilWithSync(ctx, lw, &corev1.Namespace{}, exists, gone); err != nil {
			t.Errorf("waiting for the end of the namespace %s: %v", namespace.Name, err)
		}
	})
	return namespace.Name
}

// what completes "waiting for VMI x to ...".
func awaitVMI(t *testing.T, namespace, name, what string, reached func(*v1.VirtualMachineInstance) bool) *v1.VirtualMachineInstance {
	t.Helper()
	client := virt.VirtualMachineInstance(namespace)
	return await(t, listWatch(name, client.List, client.Watch), &v1.VirtualMachineInstance{}, "VMI "+name+" to "+what, reached)
}

// awaitVM is awaitVMI for a VM.
func awaitVM(t *testing.T, namespace, name, what string, reached func(*v1.VirtualMachine) bool) *v1.VirtualMachine {
	t.Helper()
	client := virt.VirtualMachine(namespace)
	return await(t, listWatch(name, client.List, client.Watch), &v1.VirtualMachine{}, "VM "+name+" to "+what, reached)
}

func listWatch[L runtime.Object](
	name string,
	list func(context.Context, metav1.ListOptions) (L, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *cache.ListWatch {
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return follow(ctx, o)
		},
	}
}

func await[T runtime.Object](t *testing.T, lw cache.ListerWatcher, empty T, what string, reached func(T) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	last := empty
	_, err := toolswatch.UntilWithSync(ctx, lw, empty, nil, func(event watch.Event) (bool, error) {
		current, isT := event.Object.(T)
		if !isT || event.Type == watch.Deleted {
			return false, nil
		}
		last = current
		return reached(current), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v\nlast seen: %+v", what, err, last)
	}
	return last
}

func awaitNoVMI(t *testing.T, namespace, name string) {
	t.Helper()
	client := virt.VirtualMachineInstance(namespace)
	awaitDeleted(t, listWatch(name, client.List, client.Watch), &v1.VirtualMachineInstance{}, "VMI "+name)
}

func awaitDeleted(t *testing.T, lw cache.ListerWatcher, empty runtime.Object, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	gone := func(event watch.Event) (bool, error) { return event.Type == watch.Deleted, nil }
	never := func(store cache.Store) (bool, error) { return len(store.List()) == 0, nil }
	if _, err := toolswatch.UntilWithSync(ctx, lw, empty, never, gone); err != nil {
		t.Fatalf("waiting for the end of %s: %v", what, err)
	}
}

func mustFail(t *testing.T, doing string, err error, is func(error) bool, sentence string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s succeeded, but should be refused", doing)
		return
	}
	if !is(err) || !contains(err.Error(), sentence) {
		t.Errorf("%s: got %q (%s), want a sentence with %q", doing, err, errors.ReasonForError(err), sentence)
	}
}
