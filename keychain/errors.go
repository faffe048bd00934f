package keychain

import (
	"errors"
	"fmt"
	"net/http"
)

var (
	// ErrClaimed is returned by Claim if the keychain already has a claim on the resource.
	ErrClaimed = errors.New("this keychain claims the resource already")
	// ErrTimeout is returned by Claim if the claim was not active within WithTimeout. It comes with the last failure.
	ErrTimeout = errors.New("not active in time")
	// ErrLost is the error of a lost claim. It comes with an *AnswerError if the server refused a request, or with
	// ErrTimeUp.
	ErrLost = errors.New("the claim was lost")
	// ErrTimeUp is the cause of a loss: no renewal succeeded while the lease lasted.
	ErrTimeUp = errors.New("the lease was not renewed in time")
	// ErrReleased is the error of a claim after Release.
	ErrReleased = errors.New("the claim was released")
	// ErrClosed is returned by a closed keychain, and by Err of its claims.
	ErrClosed = errors.New("the keychain is closed")
	// ErrNotEnded is returned by Release and Close if the server did not answer in time. An active claim then ends
	// with its TTL. A waiting claim may still be granted, and then ends with its TTL.
	ErrNotEnded = errors.New("the claim was not ended in time, and is left to its TTL")
)

// AnswerError is an answer that refuses a request, or does not belong to the protocol. As a result of Claim, and in a
// claim's Err, it comes from the server; in a warning it may come from a proxy.
type AnswerError struct {
	// Request is the method and the URL.
	Request string
	// Code is the status of the answer.
	Code int
	// Body is the beginning of its body.
	Body string
	// Status is the final status of the claim, "" if it has not ended. Reason and EndedBy say why it ended and who
	// ended it, if the server knows.
	Status, Reason, EndedBy string
	// problem describes an answer that is wrong in spite of its code.
	problem string
}

func (e *AnswerError) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.Request, e.Code, http.StatusText(e.Code))
	if e.problem != "" {
		text += " (" + e.problem + ")"
	}
	switch {
	case e.Status != "":
		text += ": " + e.end()
	case e.Body != "":
		text += ": " + e.Body
	}
	return text
}

// end says how the claim has ended.
func (e *AnswerError) end() string {
	text := "the claim was " + e.Status
	if e.Status == "expired" {
		text = "the claim expired"
	}
	if e.EndedBy != "" {
		text += fmt.Sprintf(" by %q", e.EndedBy)
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}
