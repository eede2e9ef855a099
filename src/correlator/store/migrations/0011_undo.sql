-- Whatever a person does on a page can be taken back at once, so each deed has one that undoes it.
ALTER TABLE kept.incident_actions
    DROP CONSTRAINT incident_actions_kind_check,
    ADD CONSTRAINT incident_actions_kind_check CHECK (
        kind IN (
            'acknowledge', 'unacknowledge', 'assign', 'unassign', 'mute', 'unmute', 'resolve', 'reopen', 'comment'
        )
    );
