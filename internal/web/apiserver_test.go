//go:build apiserver

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// These tests pass requests to a real kube-apiserver with the CRDs, whose kubeconfig is in DRYDOCK_TEST_KUBECONFIG.
// Drydock may run there, or not.

const kubeconfigVariable = "DRYDOCK_TEST_KUBECONFIG"

// world is an API server with a namespace of this test.
type world struct {
	t         *testing.T
	config    *rest.Config
	admin     kubernetes.Interface
	namespace string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	path := os.Getenv(kubeconfigVariable)
	if path == "" {
		t.Fatalf("%s must name the kubeconfig file of an API server", kubeconfigVariable)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must(t, err)
	admin, err := kubernetes.NewForConfig(config)
	must(t, err)
	namespace, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-test-"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), deadline)
		defer stop()
		if err := admin.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting the test's namespace: %v", err)
		}
	})
	return &world{t, config, admin, namespace.Name}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// browser returns a page of a web console with the rights of config.
func (w *world) browser(config *rest.Config) *browser {
	w.t.Helper()
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	upstream, _, err := rest.DefaultServerUrlFor(config)
	must(w.t, err)
	transport, err := rest.TransportFor(config)
	must(w.t, err)
	return openTo(w.t, upstream, transport)
}

func (w *world) machines() string {
	return "/apis/kubevirt.io/v1/namespaces/" + w.namespace + "/virtualmachines"
}

func (w *world) machine(name string) string {
	return fmt.Sprintf(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":%q,"namespace":%q},"spec":{"runStrategy":"Halted",
		"template":{"spec":{"domain":{"memory":{"guest":"64Mi"},"devices":{}}}}}}`, name, w.namespace)
}

// answered returns an answer's body, and fails if its code is another.
func (b *browser) answered(code int, method, target, body string, headers ...string) []byte {
	b.t.Helper()
	response := b.do(method, target, body, headers...)
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != code {
		b.t.Fatalf("%s %s: answered %d %s (reading it: %v); want %d", method, target, response.StatusCode, text, err, code)
	}
	return text
}

// label gives an object the label changed, as the page of its YAML does. Drydock, if it runs there, changes the object, too.
func (b *browser) label(target string) {
	b.t.Helper()
	for until := time.Now().Add(deadline); ; {
		var object map[string]any
		must(b.t, json.Unmarshal(b.answered(http.StatusOK, "GET", target, ""), &object))
		object["metadata"].(map[string]any)["labels"] = map[string]string{"changed": "yes"}
		text, err := json.Marshal(object)
		must(b.t, err)
		response := b.do("PUT", target, string(text), asJSON)
		if response.StatusCode == http.StatusOK {
			return
		}
		if response.StatusCode != http.StatusConflict || time.Now().After(until) {
			b.t.Fatalf("changing %s: answered %d", target, response.StatusCode)
		}
	}
}

const asJSON = "Content-Type: application/json"

// event is a message of a watch.
type event struct {
	Type   string
	Object struct {
		Kind     string
		Metadata metav1.ObjectMeta
		Code     int
	}
}

// await reads a watch until an event is seen.
func awaitEvent(t *testing.T, next func() ([]byte, error), seen func(event) bool) {
	t.Helper()
	for {
		message, err := next()
		if err != nil {
			t.Fatalf("the watch ended: %v", err)
		}
		var e event
		if err := json.Unmarshal(message, &e); err != nil {
			t.Fatalf("the watch sent %q, which is no event: %v", message, err)
		}
		if seen(e) {
			return
		}
	}
}

func TestPagesAtAnAPIServer(t *testing.T) {
	w := newWorld(t)
	b := w.browser(w.config)
	var list struct {
		Metadata metav1.ListMeta
		Items    []any
	}
	must(t, json.Unmarshal(b.answered(http.StatusOK, "GET", w.machines()+"?limit=2", ""), &list))
	if len(list.Items) != 0 || list.Metadata.ResourceVersion == "" {
		t.Fatalf("the new namespace has %+v", list)
	}
	ws := b.mustDial(w.machines()+"?watch=true&allowWatchBookmarks=true&resourceVersion="+list.Metadata.ResourceVersion, watchAnswer)
	must(t, ws.SetReadDeadline(time.Now().Add(deadline)))
	next := func() ([]byte, error) {
		_, message, err := ws.ReadMessage()
		return message, err
	}
	b.answered(http.StatusCreated, "POST", w.machines()+"?dryRun=All", w.machine("tried"), asJSON)
	b.answered(http.StatusNotFound, "GET", w.machines()+"/tried", "")
	b.answered(http.StatusCreated, "POST", w.machines(), w.machine("made"), asJSON)
	awaitEvent(t, next, func(e event) bool {
		if e.Object.Metadata.Name == "tried" {
			t.Error("a machine of a dry run was made")
		}
		return e.Type == "ADDED" && e.Object.Metadata.Name == "made"
	})
	b.label(w.machines() + "/made")
	awaitEvent(t, next, func(e event) bool { return e.Type == "MODIFIED" && e.Object.Metadata.Labels["changed"] == "yes" })
	// If Drydock runs there, its finalizer is on the machine for a while.
	b.answered(http.StatusOK, "DELETE", w.machines()+"/made", "")
	awaitEvent(t, next, func(e event) bool { return e.Type == "DELETED" })
	old := b.mustDial(w.machines()+"?watch=true&resourceVersion=1", watchAnswer)
	must(t, old.SetReadDeadline(time.Now().Add(deadline)))
	awaitEvent(t, func() ([]byte, error) {
		_, message, err := old.ReadMessage()
		return message, err
	}, func(e event) bool { return e.Type == "ERROR" && e.Object.Code == http.StatusGone })
}

// An administrator's console does not pass Secrets, either.
func TestSecretsDoNotPassToAnAPIServer(t *testing.T) {
	w := newWorld(t)
	b := w.browser(w.config)
	for _, target := range []string{"/api/v1/secrets", "/api/v1/namespaces/" + w.namespace + "/secrets", "/api/v1/namespaces/" + w.namespace + "/pods/../secrets"} {
		response := b.do("GET", target, "")
		if s := b.status(response); response.StatusCode < http.StatusBadRequest || strings.Contains(s.Message, "SecretList") {
			t.Errorf("%s: answered %d %+v", target, response.StatusCode, s)
		}
	}
}

// The server decides no rights: a viewer reads, and gets the API server's own sentence when writing.
func TestAViewerAtAnAPIServer(t *testing.T) {
	w := newWorld(t)
	const user = "web-viewer"
	read := rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get", "list", "watch"}}
	_, err := w.admin.RbacV1().Roles(w.namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{read}}, metav1.CreateOptions{})
	must(t, err)
	_, err = w.admin.RbacV1().RoleBindings(w.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	must(t, err)
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = user
	b := w.browser(config)
	asked := func(verb, namespace string) bool {
		text := b.answered(http.StatusCreated, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"group":"kubevirt.io","resource":"virtualmachines","verb":%q,"namespace":%q}}}`, verb, namespace), asJSON)
		var review struct{ Status struct{ Allowed bool } }
		must(t, json.Unmarshal(text, &review))
		return review.Status.Allowed
	}
	// A binding takes effect a moment after its creation.
	for until := time.Now().Add(deadline); !asked("list", w.namespace); {
		if time.Now().After(until) {
			t.Fatal("the viewer never got the right to list")
		}
	}
	if asked("create", w.namespace) || asked("list", "default") {
		t.Error("the viewer may create, or look into another namespace")
	}
	b.answered(http.StatusOK, "GET", w.machines(), "")
	for target, body := range map[string]string{w.machines(): w.machine("theirs"), w.machines() + "?dryRun=All": w.machine("theirs")} {
		text := b.answered(http.StatusForbidden, "POST", target, body, asJSON, "Impersonate-User: admin", "Impersonate-Group: system:masters")
		if !strings.Contains(string(text), `User \"`+user+`\" cannot create resource \"virtualmachines\"`) {
			t.Errorf("%s: %s; want the API server's own sentence", target, text)
		}
	}
	b.answered(http.StatusForbidden, "GET", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines", "")
	if _, response, err := b.dial("/apis/kubevirt.io/v1/virtualmachines?watch=true", string(watchAnswer)); err == nil || response == nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("a watch of all namespaces: %v, %v; want 403", response, err)
	}
	b.mustDial(w.machines()+"?watch=true", watchAnswer)
}
