//go:build apiserver

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"drydock.dev/drydock/internal/controller/hotplug"
	"drydock.dev/drydock/internal/logs/logstest"
	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/process"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// testNode is the node of bound pods. It must exist, or the cluster's collector of lost pods would delete them.
const testNode = "a-node"

// otherNode is the target of migrations.
const otherNode = "another-node"

// patience bounds one wait on a busy machine, where a request may take ten seconds.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	code, err := runOnNode(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runOnNode(m *testing.M) (code int, err error) {
	config, err := serverUnderTest()
	if err != nil {
		return 0, err
	}
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return 0, fmt.Errorf("making a client: %w", err)
	}
	for _, name := range []string{testNode, otherNode} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		if err := c.Create(context.Background(), node); err != nil && !apierrors.IsAlreadyExists(err) {
			return 0, fmt.Errorf("creating the node %s: %w", name, err)
		}
		defer func() { err = errors.Join(err, client.IgnoreNotFound(c.Delete(context.Background(), node))) }()
	}
	defer func() { err = errors.Join(err, removeCommonTypes(c)) }()
	remove, err := controllerPolicy(c)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	for _, name := range []string{testNode, otherNode} {
		beating.Go(func() { beat(ctx, c, name) })
	}
	defer beating.Wait()
	defer cancel()
	var anonymous sync.Map
	ctrl.SetLogger(logstest.Logger(func(l logstest.Line) {
		if fault := subjectFault(l); fault != "" {
			anonymous.Store(l.Message, fault)
		}
	}))
	code = m.Run()
	for message, fault := range anonymous.Range {
		err = errors.Join(err, fmt.Errorf("the line %q: %v", message, fault))
	}
	return code, err
}

// Without renewed leases the node controller would change the node conditions that the tests write.
func beat(ctx context.Context, c client.Client, node string) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}}
	for tick := time.NewTicker(3 * time.Second); ; {
		renewed := func() error {
			lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: new(int32(10)), RenewTime: new(metav1.NowMicro())}
			return nil
		}
		_, _ = controllerutil.CreateOrUpdate(ctx, c, lease, renewed)
		select {
		case <-ctx.Done():
			tick.Stop()
			_ = c.Delete(context.Background(), lease) // it is deleted with its node anyway
			return
		case <-tick.C:
		}
	}
}

func serverUnderTest() (*rest.Config, error) {
	path := os.Getenv("DRYDOCK_TEST_KUBECONFIG")
	if path == "" {
		return nil, errors.New("DRYDOCK_TEST_KUBECONFIG must name the kubeconfig of an API server with Drydock's CRDs")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	config.QPS = -1
	return config, nil
}

// servedKinds are discovered once, as by the loops of one process.
var servedKinds = sync.OnceValues(func() (meta.RESTMapper, error) {
	config, err := serverUnderTest()
	if err != nil {
		return nil, err
	}
	asks, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return apiutil.NewDynamicRESTMapper(config, asks)
})

// prepared guards the steps that a process does once before its loops run; they belong to no world.
var prepared sync.Once

// world is a namespace of a real API server with running loops. The test plays scheduler, kubelet, virt-handler
// and garbage collector.
type world struct {
	t         *testing.T
	ctx       context.Context
	client    client.Client
	namespace string
	writes    *writes
	config    *rest.Config
	options   options
	// watched limits the loops' cache for some kinds.
	watched map[client.Object]cache.ByObject
	// progress is the progress of the loops that were started last.
	progress *progress
	stop     func()
}

// writes records the loops' writes, except leases.
type writes struct {
	mu    sync.Mutex
	lines []string
	// underWay counts the writes without an answer.
	underWay int
}

type recordingTransport struct {
	next   http.RoundTripper
	writes *writes
}

func (r recordingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || strings.Contains(req.URL.Path, "/leases") {
		return r.next.RoundTrip(req)
	}
	r.writes.begin()
	resp, err := r.next.RoundTrip(req)
	r.writes.end(req, resp)
	return resp, err
}

func (w *writes) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underWay++
}

// end records a write that was answered.
func (w *writes) end(req *http.Request, resp *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underWay--
	if resp == nil {
		return
	}
	resource := req.URL.Path
	if _, after, ok := strings.Cut(req.URL.Path, "/namespaces/"); ok {
		resource = after
	}
	w.lines = append(w.lines, fmt.Sprintf("%s %s %d", req.Method, resource, resp.StatusCode))
}

func (w *writes) unanswered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.underWay
}

// The form is "METHOD resource[/subresource]", with the status code of a refused write.
func (w *writes) of(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, line := range w.lines {
		fields := strings.Fields(line)
		parts := strings.Split(fields[1], "/")
		if parts[0] != namespace {
			continue
		}
		entry := fields[0] + " " + parts[1]
		if len(parts) > 3 {
			entry += "/" + parts[3]
		}
		if !strings.HasPrefix(fields[2], "2") {
			entry += " " + fields[2]
		}
		out = append(out, entry)
	}
	return out
}

func newWorld(t *testing.T, changes ...func(*options)) *world {
	t.Helper()
	config, err := serverUnderTest()
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := servedKinds()
	if err != nil {
		t.Fatalf("asking for the kinds that are served: %v", err)
	}
	c, err := client.New(config, client.Options{Scheme: newScheme(), Mapper: mapper})
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, client: c, writes: &writes{}, config: config, progress: &progress{}}

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "controller-test-"}}
	w.do("creating a namespace", c.Create(ctx, ns))
	w.namespace = ns.Name
	t.Cleanup(w.sweep)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns.Name}}
	if err := c.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("creating the default service account: %v", err)
	}
	w.config.Impersonate = w.leastPrivilege()
	w.options = options{namespace: ns.Name, launcherImage: "example.com/launcher:1", importerImage: "example.com/importer:1",
		serving: metricsserver.Options{Metrics: metricsserver.None, Health: metricsserver.None}, identity: t.Name(), several: true, leaseSlack: 3 * patience, mapper: mapper, now: time.Now, maxAttachmentPods: hotplug.DefaultMaxAttachmentPods}
	for _, change := range changes {
		change(&w.options)
	}
	w.startLoops()
	return w
}

// A slow test on a busy machine must not count as a slow scheduler.
func clockStands(o *options) {
	start := time.Now()
	o.now = func() time.Time { return start }
}

// Writes that met a conflict are repeated, a random number of times.
func granted(writes []string) []string {
	return slices.DeleteFunc(slices.Clone(writes), func(line string) bool { return strings.HasSuffix(line, " 409") })
}

// startLoops runs virt-controller's loops in this process.
func (w *world) startLoops() {
	w.t.Helper()
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return recordingTransport{next, w.writes} })
	prepared.Do(func() { w.do("preparing", prepare(w.ctx, config)) })
	caches, err := cacheOptions(config, newScheme(), w.options)
	w.do("finding what the loops watch", err)
	w.watched = caches.ByObject
	mgr, err := newManager(config, w.options, &process.Pace{})
	w.do("making the manager", err)
	w.progress = &progress{}
	w.do("registering the loops", register(w.ctx, observedManager{mgr, w.progress}, w.options))
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("running the loops: %v", err)
		}
	})
	w.t.Cleanup(w.stop)
}

// anotherNamespace makes a second namespace.
func (w *world) anotherNamespace() string {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "controller-test-"}}
	w.do("creating another namespace", w.client.Create(w.ctx, ns))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), ns) })
	return ns.Name
}

func (w *world) cleanup() context.Context { return context.WithoutCancel(w.ctx) }

// sweep removes all objects of the namespace that the loops of later tests would see. The loops have ended, so sweep
// removes their finalizers. The namespace itself stays until the cluster is deleted: to delete one,
// kube-controller-manager lists the objects of every kind.
func (w *world) sweep() {
	ctx := w.cleanup()
	for _, kind := range w.progress.kinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		mapping, err := w.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot {
			continue
		}
		if err = errors.Join(err, w.client.List(ctx, list, client.InNamespace(w.namespace))); err != nil {
			w.t.Errorf("sweeping namespace %s: %v", w.namespace, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind)
			_ = w.client.Delete(ctx, object, client.GracePeriodSeconds(0))
			if len(object.GetFinalizers()) > 0 {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				_ = w.client.Patch(ctx, object, patch)
			}
		}
	}
}

func (w *world) do(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// eventually waits until the condition holds; why explains the last failure. Conditions ask the API server, which the
// loops use, too.
func (w *world) eventually(what string, condition func() (ok bool, why string)) {
	w.t.Helper()
	var why string
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	// Short pauses at first, longer ones later, to spare the API server.
	pauses := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1.4, Steps: 100, Cap: 300 * time.Millisecond}.DelayFunc()
	err := pauses.Until(ctx, true, true, func(context.Context) (bool, error) {
		var ok bool
		ok, why = condition()
		return ok, nil
	})
	if err != nil {
		w.t.Fatalf("waiting for %s: %v: %s\nwrites: %s", what, err, why, strings.Join(w.writes.of(w.namespace), "\n        "))
	}
}

func (w *world) expectWrites(want ...string) {
	w.t.Helper()
	w.expectWritesOf(want)
}

// expectWritesOf waits for exactly one of several lists of writes.
func (w *world) expectWritesOf(lists ...[]string) {
	w.t.Helper()
	w.eventually("exactly the expected writes", func() (bool, string) {
		got := slices.Sorted(slices.Values(w.writes.of(w.namespace)))
		expected := slices.ContainsFunc(lists, func(want []string) bool { return slices.Equal(got, slices.Sorted(slices.Values(want))) })
		return expected, fmt.Sprintf("\n got %q\nwant %q", got, lists)
	})
}

func (w *world) vmi(name string) *v1.VirtualMachineInstance {
	var vmi v1.VirtualMachineInstance
	err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &vmi)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.do("reading VMI "+name, err)
	return &vmi
}

func (w *world) vm(name string) *v1.VirtualMachine {
	var vm v1.VirtualMachine
	err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.do("reading VM "+name, err)
	return &vm
}

func (w *world) awaitPhase(name string, phase v1.VirtualMachineInstancePhase) *v1.VirtualMachineInstance {
	w.t.Helper()
	var vmi *v1.VirtualMachineInstance
	w.eventually(fmt.Sprintf("VMI %s in phase %s", name, phase), func() (bool, string) {
		if vmi = w.vmi(name); vmi == nil {
			return false, "there is no VMI"
		}
		return vmi.Status.Phase == phase, fmt.Sprintf("it is in phase %q, conditions %+v", vmi.Status.Phase, vmi.Status.Conditions)
	})
	return vmi
}

func (w *world) awaitGone(name string) {
	w.t.Helper()
	w.eventually("VMI "+name+" to go", func() (bool, string) { return w.vmi(name) == nil, "it is still there" })
}

func (w *world) awaitPrintable(name string, want v1.VirtualMachinePrintableStatus) *v1.VirtualMachine {
	w.t.Helper()
	var vm *v1.VirtualMachine
	w.eventually(fmt.Sprintf("VM %s to say %s", name, want), func() (bool, string) {
		vm = w.vm(name)
		return vm.Status.PrintableStatus == want, fmt.Sprintf("it says %q: %+v", vm.Status.PrintableStatus, vm.Status.Conditions)
	})
	return vm
}

func (w *world) pods() []corev1.Pod {
	var list corev1.PodList
	w.do("listing pods", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	return list.Items
}

func (w *world) awaitPod(vmi *v1.VirtualMachineInstance) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.eventually("the launcher pod", func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: launcherpod.Name(vmi)}, pod)
		return err == nil, fmt.Sprint(err)
	})
	return pod
}

func (w *world) awaitLauncher(name string) *corev1.Pod {
	w.t.Helper()
	var vmi *v1.VirtualMachineInstance
	w.eventually("VMI "+name, func() (bool, string) {
		vmi = w.vmi(name)
		return vmi != nil, "there is none"
	})
	return w.awaitPod(vmi)
}

// bind plays the scheduler.
func (w *world) bind(pod *corev1.Pod) {
	w.t.Helper()
	w.bindTo(pod, testNode)
}

func (w *world) bindTo(pod *corev1.Pod, node string) {
	w.t.Helper()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	w.do("binding the pod", w.client.SubResource("binding").Create(w.ctx, pod, binding))
}

// podStatus plays the kubelet.
func (w *world) podStatus(pod *corev1.Pod, edit func(*corev1.PodStatus)) {
	w.t.Helper()
	w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	before := pod.DeepCopy()
	edit(&pod.Status)
	w.do("writing the pod's status", w.client.Status().Patch(w.ctx, pod, client.MergeFrom(before)))
}

// removePod plays the kubelet at the end of a deletion.
func (w *world) removePod(pod *corev1.Pod) {
	w.t.Helper()
	w.do("removing the pod", client.IgnoreNotFound(w.client.Delete(w.ctx, pod, client.GracePeriodSeconds(0))))
}

func (w *world) awaitPodDeletion(pod *corev1.Pod) {
	w.t.Helper()
	w.eventually("the launcher pod to be deleted", func() (bool, string) {
		var p corev1.Pod
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), &p)
		return apierrors.IsNotFound(err) || err == nil && p.DeletionTimestamp != nil, "it is not"
	})
}

// phase plays virt-handler.
func (w *world) phase(name string, phase v1.VirtualMachineInstancePhase) {
	w.t.Helper()
	vmi := w.vmi(name)
	before := vmi.DeepCopy()
	vmi.Status.Phase = phase
	vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.Now()})
	if phase == v1.Running {
		for i := range vmi.Status.Conditions {
			if c := &vmi.Status.Conditions[i]; c.Type == v1.VirtualMachineInstanceReady {
				c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
			}
		}
	}
	w.do("writing the phase", w.client.Patch(w.ctx, vmi, client.MergeFrom(before)))
}

// run plays scheduler and virt-handler until a VMI is Running.
func (w *world) run(name string) *corev1.Pod {
	w.t.Helper()
	pod := w.awaitLauncher(name)
	w.bind(pod)
	w.awaitPhase(name, v1.Scheduled)
	w.phase(name, v1.Running)
	return pod
}

// end plays the end of a guest and of its pod.
func (w *world) end(name string, pod *corev1.Pod, phase v1.VirtualMachineInstancePhase) {
	w.t.Helper()
	w.phase(name, phase)
	end := corev1.PodSucceeded
	if phase == v1.Failed {
		end = corev1.PodFailed
	}
	w.podStatus(pod, func(s *corev1.PodStatus) { s.Phase = end })
}

func (w *world) createVMI(name string) {
	w.t.Helper()
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Finalizers: []string{v1.VirtualMachineInstanceFinalizer}},
		Spec:       testSpec(),
	}
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
}

// Admission would leave a VM with a UUID.
func (w *world) createVM(name string, strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	w.t.Helper()
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template:    &v1.VirtualMachineInstanceTemplateSpec{Spec: testSpec()},
		},
	}
	vm.Spec.Template.Spec.Domain.Firmware = &v1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
	w.do("creating the VM", w.client.Create(w.ctx, vm))
	return vm
}
