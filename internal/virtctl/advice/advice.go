// Package advice suggests a user's next step after an error. It inspects errors only, and must call no server.
package advice

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

type rule struct {
	matches func(error) bool
	next    string
}

// rules are in order; the first match counts.
var rules = []rule{
	{is(env.ErrNoCluster), "name a cluster with --kubeconfig, the variable KUBECONFIG or --context"},
	{is(client.ErrNotStarted), "start it with 'virtctl start NAME', or see why it ended with 'kubectl describe vmi NAME'"},
	{alreadyRuns, "see its state with 'kubectl get vm', or restart it with 'virtctl restart NAME'"},
	{missingAPI, "this cluster does not serve it: see 'kubectl get apiservice v1.subresources.kubevirt.io' and 'kubectl -n kubevirt get pods'"},
	{missing("secrets"), "list the Secrets with 'kubectl get secrets'; a machine does not start while one of its accessCredentials is missing"},
	{missing("virtualmachineinstances"), "a VirtualMachine that is stopped has no VMI: 'virtctl start NAME'; list what is there with 'kubectl get vm,vmi --all-namespaces'"},
	{apierrors.IsNotFound, "list what is there with 'kubectl get vm,vmi --all-namespaces'; -n chooses the namespace"},
	{apierrors.IsForbidden, "ask for a role that allows it: kubevirt.io:edit to change machines, kubevirt.io:migrate to migrate them, kubevirt.io:view to look"},
	{apierrors.IsUnauthorized, "the cluster does not accept the credentials of this kubeconfig; log in again"},
	{unavailable, "is virt-api ready? See 'kubectl -n kubevirt get pods -l kubevirt.io=virt-api'"},
	{unreachable, "is the cluster up, and is --kubeconfig or --context the right one?"},
}

// For returns the next step after an error, "" for none.
func For(err error) string {
	for _, r := range rules {
		if r.matches(err) {
			return r.next
		}
	}
	return ""
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func alreadyRuns(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "already running")
}

// missingAPI reports whether the cluster lacks the API, not only the object: the error about a missing object
// names it.
func missingAPI(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusNotFound {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

func missing(resource string) func(error) bool {
	return func(err error) bool {
		var status apierrors.APIStatus
		if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
			return false
		}
		details := status.Status().Details
		return details != nil && details.Kind == resource
	}
}

func unavailable(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

func unreachable(err error) bool {
	var operation *net.OpError
	var lookup *net.DNSError
	var request *url.Error
	return errors.As(err, &operation) || errors.As(err, &lookup) || errors.As(err, &request) && request.Timeout()
}
