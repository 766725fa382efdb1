//go:build apiserver

package api

import (
	"fmt"
	"net/http"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
)

// migrators are the users of migrationRoles with their roles in the test's namespace. The first three roles are
// Kubernetes' own, to which Drydock's are aggregated.
var migrators = map[string]string{"m-admin": "admin", "m-editor": "edit", "m-viewer": "view", "m-mover": "kubevirt.io:migrate", "m-stranger": ""}

type access struct{ verb, group, resource, subresource string }

func (a access) String() string {
	return fmt.Sprintf("%s %s.%s/%s", a.verb, a.resource, a.group, a.subresource)
}

// Only users of the role that an administrator binds may migrate (decision 285).
func (w *world) migrationRoles(t *testing.T) {
	for user, role := range migrators {
		if role == "" {
			continue
		}
		must(t, w.admin.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: w.namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}))
	}
	const migrations = "virtualmachineinstancemigrations"
	for _, verb := range []string{"get", "list", "watch"} {
		w.allows(t, access{verb, v1.GroupVersion.Group, migrations, ""}, "m-admin", "m-editor", "m-viewer", "m-mover")
	}
	for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
		w.allows(t, access{verb, v1.GroupVersion.Group, migrations, ""}, "m-mover")
	}
	for _, verb := range []string{"update", "patch"} {
		w.allows(t, access{verb, v1.GroupVersion.Group, migrations, "status"})
		// A VM's owner may change its template, even if that needs a migration.
		w.allows(t, access{verb, v1.GroupVersion.Group, "virtualmachines", ""}, "m-admin", "m-editor")
	}
	w.allows(t, access{"update", v1.SubresourceGroupName, "virtualmachines", "migrate"}, "m-mover")
	for _, resource := range []string{"virtualmachines", "virtualmachineinstances"} {
		w.allows(t, access{"update", v1.SubresourceGroupName, resource, "evacuate"}, "m-mover")
		w.allows(t, access{"get", v1.SubresourceGroupName, resource, "evacuate"})
		w.allows(t, access{"delete", v1.GroupVersion.Group, resource, ""}, "m-admin", "m-editor")
	}
	// The KubeVirt object configures the whole cluster (decision 545).
	for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
		w.allows(t, access{verb, v1.GroupVersion.Group, "kubevirts", ""})
	}
	w.snapshotRoles(t)
	w.maintenanceRoles(t)
	w.migratorsCalls(t)
}

// snapshotRoles asks the authorizer who may take and restore snapshots: those who may change VMs. Contents can only be
// read and deleted.
func (w *world) snapshotRoles(t *testing.T) {
	const group, contents = "snapshot.kubevirt.io", "virtualmachinesnapshotcontents"
	for _, resource := range []string{"virtualmachinesnapshots", "virtualmachinerestores"} {
		w.allows(t, access{"list", group, resource, ""}, "m-admin", "m-editor", "m-viewer")
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			w.allows(t, access{verb, group, resource, ""}, "m-admin", "m-editor")
		}
		w.allows(t, access{"patch", group, resource, "status"})
	}
	w.allows(t, access{"list", group, contents, ""}, "m-admin", "m-editor", "m-viewer")
	w.allows(t, access{"delete", group, contents, ""}, "m-admin", "m-editor")
	for _, verb := range []string{"create", "update", "patch"} {
		w.allows(t, access{verb, group, contents, ""})
	}
}

func (w *world) maintenanceRoles(t *testing.T) {
	for _, resource := range []string{"virtualmachines", "virtualmachineinstances"} {
		w.allows(t, access{"get", v1.SubresourceGroupName, resource, "maintenance"}, "m-admin", "m-editor", "m-viewer")
		for _, verb := range []string{"create", "delete"} {
			w.allows(t, access{verb, v1.SubresourceGroupName, resource, "maintenance"}, "m-admin", "m-editor")
		}
		w.allows(t, access{"update", v1.SubresourceGroupName, resource, "maintenance"})
		// Forcing the lock away from a pod that still writes destroys the disks.
		w.allows(t, access{"update", v1.SubresourceGroupName, resource, "maintenance-force"}, "m-admin")
		for _, verb := range []string{"get", "create", "delete", "patch"} {
			w.allows(t, access{verb, v1.SubresourceGroupName, resource, "maintenance-force"})
		}
	}
	w.maintainersCalls(t)
}

// allows asks for each user whether he may do that in the test's namespace, and in another one, where nobody may.
func (w *world) allows(t *testing.T, a access, whom ...string) {
	t.Helper()
	may := map[string]bool{}
	for _, user := range whom {
		may[user] = true
	}
	for user := range migrators {
		for _, namespace := range []string{w.namespace, metav1.NamespaceDefault} {
			want := may[user] && namespace == w.namespace
			// A binding takes effect a moment after its creation.
			w.eventually(t, fmt.Sprintf("%s in %s: %s, allowed: %v", user, namespace, a, want), func() error {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user, Groups: []string{"system:authenticated"},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: a.verb, Group: a.group, Resource: a.resource, Subresource: a.subresource,
					},
				}}
				if err := w.admin.Create(t.Context(), review); err != nil {
					return err
				}
				if review.Status.Allowed != want {
					return fmt.Errorf("allowed: %v (%s)", review.Status.Allowed, review.Status.Reason)
				}
				return nil
			})
		}
	}
}

// migratorsCalls makes the calls as the users: the authorizer must be asked for exactly those.
func (w *world) migratorsCalls(t *testing.T) {
	w.running(t, "evacuated")
	paths := []string{
		w.subresource("virtualmachines", "evacuated", "migrate"),
		w.subresource("virtualmachines", "evacuated", "evacuate/cancel"),
		w.subresource("virtualmachineinstances", "evacuated", "evacuate/cancel"),
	}
	for user := range migrators {
		config := rest.CopyConfig(w.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		for _, path := range paths {
			_, err := callAs(t.Context(), config, http.MethodPut, path, "{}")
			if refused := apierrors.IsForbidden(err); refused == (user == "m-mover") {
				t.Errorf("%s calls %s: %v", user, path, err)
			}
		}
	}
}
