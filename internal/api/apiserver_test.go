//go:build apiserver

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// These tests run virt-api in this process against a real kube-apiserver with the CRDs, whose kubeconfig is in
// DRYDOCK_TEST_KUBECONFIG. They install the manifests in config; only the Service leads here, and the webhooks get only
// this test's namespaces.

const kubeconfigVariable = "DRYDOCK_TEST_KUBECONFIG"

// testLabel marks the webhooks' namespaces.
const testLabel = "drydock.dev/api-test"

// world is a running virt-api with its test clients.
type world struct {
	t *testing.T
	// admin may do everything; namespace is this test's own.
	admin     client.Client
	config    *rest.Config
	namespace string
	node      *node
	// kubeconfig is virt-api's.
	kubeconfig string
	// policy is the binding of virt-handlers' policy on requests for certificates.
	policy client.Object
	// stop ends virt-api; calling it again does no harm.
	stop func()
	// address is virt-api's, uploadAddress the upload proxy's.
	address, uploadAddress string
	// metricsAddress and healthAddress serve metrics and probes, with the certificate in the folder certificates.
	metricsAddress, healthAddress, certificates string
}

// patience bounds one wait on a busy machine.
var patience = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1, Steps: 6000}

// start starts virt-api once for all the subtests of t.
func start(t *testing.T) *world {
	t.Helper()
	path := os.Getenv(kubeconfigVariable)
	if path == "" {
		t.Fatalf("%s must name the kubeconfig file of an API server", kubeconfigVariable)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must(t, err)
	config.QPS = -1
	scheme := runtime.NewScheme()
	must(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme), migrationsv1alpha1.AddToScheme(scheme), instancetypev1.AddToScheme(scheme)))
	admin, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	w := &world{t: t, admin: admin, config: config, address: freeAddress(t, "0.0.0.0")}
	w.uploadAddress, w.metricsAddress, w.healthAddress = freeAddress(t, "127.0.0.1"), freeAddress(t, "127.0.0.1"), freeAddress(t, "127.0.0.1")
	w.certificates = t.TempDir()
	w.install(w.address)
	w.namespace = w.newNamespace()

	w.kubeconfig = impersonating(t, path)
	o := options{kubeconfig: w.kubeconfig, address: w.address, uploadAddress: w.uploadAddress,
		serving: metricsserver.Options{Metrics: w.metricsAddress, Health: w.healthAddress, Certificates: w.certificates}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("virt-api ended with: %v", err)
		}
	})
	t.Cleanup(w.stop)
	w.node = w.newNode()
	w.awaitAdmission()
	return w
}

// The port is outside the kernel's ephemeral range, so that it is still free when virt-api listens there.
func freeAddress(t *testing.T, host string) string {
	t.Helper()
	const first, count = 12000, 20000
	var problem error
	for range 100 {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(first+rand.N(count))))
		if err == nil {
			defer listener.Close()
			return listener.Addr().String()
		}
		problem = err
	}
	t.Fatalf("finding a free port: %v", problem)
	return ""
}

// The kubeconfig has exactly the rights of virt-api's service account, to test its RBAC.
func impersonating(t *testing.T, path string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	must(t, err)
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + clusterconfig.Namespace + ":" + admission.APIServiceAccount
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:authenticated"}
	}
	copied := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, copied))
	return copied
}

// install applies the manifests except the Deployment, which this process replaces.
func (w *world) install(address string) {
	w.t.Helper()
	host, port := w.reachable(), portOf(address)
	defer w.leaveSharedKey()
	for _, file := range []string{"namespace.yaml", "rbac/api.yaml", "rbac/handler.yaml", "rbac/users.yaml", "rbac/monitoring.yaml", "deploy/api.yaml"} {
		for _, object := range manifests(w.t, filepath.Join("../../config", file)) {
			switch object.GetKind() {
			case "Deployment":
				continue
			case "Service":
				// An existing one that leads elsewhere can't be merged.
				must(w.t, client.IgnoreNotFound(w.admin.Delete(w.t.Context(), object)))
				object.Object["spec"] = map[string]any{"ports": []any{map[string]any{"name": "https", "port": int64(port)}}}
				w.apply(endpoint(object, host, port))
			case "APIService":
				must(w.t, unstructured.SetNestedField(object.Object, int64(port), "spec", "service", "port"))
			case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
				narrow(w.t, object)
			}
			w.apply(object)
		}
	}
}

func (w *world) leaveSharedKey() {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clusterconfig.Namespace, Name: sharedSecret}}
	must(w.t, client.IgnoreAlreadyExists(w.admin.Create(w.t.Context(), secret)))
	trusted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: clusterconfig.Namespace, Name: certs.TrustConfigMap}}
	patch := []byte(`{"data":{"` + sharedSecret + `.crt":"an authority"}}`)
	must(w.t, w.admin.Patch(w.t.Context(), trusted, client.RawPatch(types.MergePatchType, patch)))
}

// endpoint leads a service without a selector to this process. (An ExternalName would, too, but not for an API server
// that routes to endpoints itself.)
func endpoint(service *unstructured.Unstructured, host string, port int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata": map[string]any{
			"name": service.GetName() + "-test", "namespace": service.GetNamespace(),
			"labels": map[string]any{"kubernetes.io/service-name": service.GetName()},
		},
		"addressType": "IPv4",
		"endpoints":   []any{map[string]any{"addresses": []any{host}, "conditions": map[string]any{"ready": true}}},
		"ports":       []any{map[string]any{"name": "https", "port": int64(port), "protocol": "TCP"}},
	}}
}

// narrow limits webhooks to test namespaces.
func narrow(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	must(t, err)
	for _, webhook := range webhooks {
		hook := webhook.(map[string]any)
		hook["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{testLabel: "true"}}
	}
	must(t, unstructured.SetNestedSlice(object.Object, webhooks, "webhooks"))
}

func (w *world) apply(object *unstructured.Unstructured) {
	w.t.Helper()
	err := w.admin.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner("api-test"), client.ForceOwnership)
	must(w.t, err)
	if object.GetKind() == "Namespace" {
		return
	}
	w.t.Cleanup(func() {
		if err := w.admin.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			w.t.Errorf("removing %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	})
}

// reachable returns this machine's address for the API server.
func (w *world) reachable() string {
	w.t.Helper()
	server, err := url.Parse(w.config.Host)
	must(w.t, err)
	conn, err := net.Dial("udp", server.Host)
	must(w.t, err)
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	must(w.t, err)
	return host
}

func portOf(address string) int {
	_, text, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(text)
	return port
}

func manifests(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return objectsOf(t, path, text)
}

// objectsOf parses a manifest's text.
func objectsOf(t *testing.T, path string, text []byte) []*unstructured.Unstructured {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func (w *world) newNamespace() string {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "api-test-", Labels: map[string]string{testLabel: "true"},
	}}
	must(w.t, w.admin.Create(w.t.Context(), ns))
	w.t.Cleanup(func() { w.removeNamespace(ns) })
	return ns.Name
}

// removeNamespace also removes the finalizers that a controller would.
func (w *world) removeNamespace(ns *corev1.Namespace) {
	ctx := context.Background()
	// virt-api has ended, so its webhooks must no longer be called.
	unlabeled := ns.DeepCopy()
	delete(unlabeled.Labels, testLabel)
	if err := w.admin.Patch(ctx, unlabeled, client.MergeFrom(ns)); err != nil {
		w.t.Errorf("taking the webhooks' label off: %v", err)
	}
	vmis := &v1.VirtualMachineInstanceList{}
	if err := w.admin.List(ctx, vmis, client.InNamespace(ns.Name)); err != nil {
		w.t.Errorf("listing what is left: %v", err)
	}
	for i := range vmis.Items {
		bare := vmis.Items[i].DeepCopy()
		bare.Finalizers = nil
		var last error
		// The API server may still know the label, and calls them.
		err := wait.ExponentialBackoffWithContext(ctx, patience, func(ctx context.Context) (bool, error) {
			last = client.IgnoreNotFound(w.admin.Patch(ctx, bare, client.MergeFrom(&vmis.Items[i])))
			return last == nil, nil
		})
		if err != nil {
			w.t.Errorf("freeing VMI %s: %v", bare.Name, last)
		}
	}
	if err := w.admin.Delete(ctx, ns); err != nil {
		w.t.Errorf("removing namespace %s: %v", ns.Name, err)
	}
}

// awaitAdmission waits until the API server trusts the certificates' authority.
func (w *world) awaitAdmission() {
	w.t.Helper()
	began := time.Now()
	err := wait.ExponentialBackoffWithContext(w.t.Context(), patience, func(ctx context.Context) (bool, error) {
		return w.admin.Create(ctx, w.vm("probe"), client.DryRunAll) == nil, nil
	})
	if err != nil {
		w.t.Fatalf("admission does not answer: %v", w.admin.Create(w.t.Context(), w.vm("probe"), client.DryRunAll))
	}
	w.t.Logf("admission answered %v after virt-api's start", time.Since(began).Round(time.Millisecond))
	w.eventually(w.t, "the subresource API answers", func() error {
		_, err := w.call(http.MethodGet, "/apis/subresources.kubevirt.io/v1/version", "")
		return err
	})
}

func (w *world) eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var last error
	err := wait.ExponentialBackoffWithContext(t.Context(), patience, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// call asks the API server as the administrator.
func (w *world) call(method, path, body string) (string, error) {
	return callAs(w.t.Context(), w.config, method, path, body)
}

func callAs(ctx context.Context, config *rest.Config, method, path, body string) (string, error) {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := transport.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode < 300 {
		return string(answer), err
	}
	status := metav1.Status{}
	if err := json.Unmarshal(answer, &status); err != nil {
		return "", fmt.Errorf("%s: not a Status: %s", response.Status, answer)
	}
	return "", &apierrors.StatusError{ErrStatus: status}
}

func (w *world) subresource(resource, name, verb string) string {
	return fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/%s/%s/%s", w.namespace, resource, name, verb)
}

// vm is a small VM as a user would write it.
func (w *world) vm(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.SchemeGroupVersion.String(), "kind": "VirtualMachine",
		"metadata": map[string]any{"name": name, "namespace": w.namespace},
		"spec": map[string]any{
			"runStrategy": "Halted",
			"template": map[string]any{"spec": map[string]any{
				"domain": map[string]any{
					"devices":   map[string]any{},
					"resources": map[string]any{"requests": map[string]any{"memory": "1024Mi"}},
				},
				"volumes": []any{map[string]any{"name": "root", "emptyDisk": map[string]any{"capacity": "1024Mi"}}},
			}},
		},
	}}
}

func (w *world) vmi(name string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	guest := quantity("64Mi")
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &guest}
	return vmi
}

func (w *world) component(account string) client.Client {
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + clusterconfig.Namespace + ":" + account,
		Groups:   []string{"system:masters"},
	}
	c, err := client.New(config, client.Options{Scheme: w.admin.Scheme()})
	must(w.t, err)
	return c
}

// ServeHTTP answers with the request; streams are echoed.
func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secret := slices.ContainsFunc([]string{"Authorization", "X-Remote-User", "X-Remote-Group"},
		func(h string) bool { return r.Header.Get(h) != "" })
	if secret {
		http.Error(w, "the caller's credentials were passed on", http.StatusTeapot)
		return
	}
	if !websocket.IsWebSocketUpgrade(r) {
		n.asked <- r.Method + " " + r.URL.String()
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{nodeapi.StreamProtocol}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if err := conn.WriteMessage(kind, append([]byte(r.URL.Path+": "), message...)); err != nil {
			return
		}
	}
}

// sentence returns the text of an error that a user reads.
func sentence(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return strings.TrimSpace(fmt.Sprint(err))
}
