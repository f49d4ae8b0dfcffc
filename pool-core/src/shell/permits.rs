//! A pool's dealings with a cap that it shares with pools of other cores.

use super::shared::Shared;
use crate::connector::Connector;

impl<C: Connector> Shared<C> {
    pub(super) fn ask_permit(&self) {
        let Some(member) = &self.member else {
            return;
        };
        match member.take() {
            true => self.drive(|state, now| state.grant_permit(now)),
            false => self.drive(|state, now| state.deny_permit(now)),
        }
    }

    pub(super) fn return_permit(&self) {
        if let Some(member) = &self.member {
            member.give();
        }
    }

    pub(super) fn withdraw_permit(&self) {
        if let Some(member) = &self.member {
            member.withdraw();
        }
    }

    /// Takes the permits that came from other cores, and gives up what they ask for: idle
    /// connections at once. Where none is idle, a core that has no connection at all gets the next
    /// that is released; between those that have some, connections would only go to and fro.
    pub(super) fn deal_with_others(&self) {
        let Some(member) = &self.member else {
            return;
        };
        for _ in 0..member.collect() {
            self.drive(|state, now| state.grant_permit(now));
        }
        if !member.asked() {
            return;
        }
        while member.wanted() {
            if self.drive(|state, now| state.reclaim(now)) {
                member.give();
            } else {
                if member.needed() {
                    self.drive(|state, _| state.owe_permit());
                }
                return;
            }
        }
    }
}
