package web

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func refusal(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

func malformed(format string, args ...any) error {
	return refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

func forbidden(format string, args ...any) error {
	return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, format, args...)
}

func unavailable(format string, args ...any) error {
	return refusal(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, format, args...)
}
